; Slipstream's setup program for Windows (Inno Setup 6.3 or newer): for one user, without an administrator.
; `make package` runs it (packaging/installer/windows.py) and defines:
;   Version   of app/__init__.py              Bundle   the folder PyInstaller made
;   License   the license shown first         Icon     the icon of the setup program itself
;   Output    the folder for the result       BaseName its name without .exe
;   Sign      defined if a sign tool named "slipstream" is configured

#define Id "app.slipstream.Slipstream"
; Named by the running window too: RUNNING_MUTEX in app/ui/shell/single_instance.py.
#define RunningMutex "app.slipstream.Slipstream.Running"

[Setup]
AppId={#Id}
AppName=Slipstream
AppVersion={#Version}
AppVerName=Slipstream {#Version}
AppPublisher=The Slipstream authors
VersionInfoVersion={#Version}
VersionInfoDescription=Slipstream setup

; What Qt 6.11 and llama.cpp's build need: Windows 10 1809, x64 (Windows on Arm emulates it).
MinVersion=10.0.17763
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible

; Chats and models are elsewhere: in %LOCALAPPDATA%\Slipstream.
PrivilegesRequired=lowest
DefaultDirName={localappdata}\Programs\Slipstream
DisableProgramGroupPage=yes
LicenseFile={#License}
ChangesAssociations=yes
UninstallDisplayName=Slipstream
UninstallDisplayIcon={app}\slipstream.exe

AppMutex={#RunningMutex}
SetupMutex={#Id}.Setup
; slipstream-cli.exe in a terminal has no window and no mutex: Windows' restart manager finds and ends it.
CloseApplications=yes
RestartApplications=no

OutputDir={#Output}
OutputBaseFilename={#BaseName}
SetupIconFile={#Icon}
WizardStyle=modern
Compression=lzma2/max
SolidCompression=yes
#ifdef Sign
SignTool=slipstream
SignedUninstaller=yes
#endif

[Tasks]
Name: "desktop"; Description: "Put an icon on the &desktop"; Flags: unchecked
Name: "gguf"; Description: "Offer ""Open with Slipstream"" for &model files (.gguf)"

[InstallDelete]
; A library that the new version no longer contains must not be left among the others.
Type: filesandordirs; Name: "{app}\_internal"

[Files]
Source: "{#Bundle}\*"; DestDir: "{app}"; Flags: ignoreversion recursesubdirs createallsubdirs

[Icons]
Name: "{autoprograms}\Slipstream"; Filename: "{app}\slipstream.exe"; Comment: "Chat with local language models"
Name: "{autodesktop}\Slipstream"; Filename: "{app}\slipstream.exe"; Tasks: desktop

; Slipstream joins those that can open .gguf ("Open with", and a menu entry of its own); the default stays as it is.
[Registry]
Root: HKCU; Subkey: "Software\Classes\.gguf"; Flags: uninsdeletekeyifempty; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\.gguf\OpenWithProgids"; Flags: uninsdeletekeyifempty; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\.gguf\OpenWithProgids"; ValueType: string; ValueName: "Slipstream.gguf"; ValueData: ""; Flags: uninsdeletevalue; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\Slipstream.gguf"; ValueType: string; ValueData: "Language model (GGUF)"; Flags: uninsdeletekey; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\Slipstream.gguf\shell\open"; ValueType: string; ValueName: "FriendlyAppName"; ValueData: "Slipstream"; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\Slipstream.gguf\shell\open\command"; ValueType: string; ValueData: """{app}\slipstream.exe"" ""%1"""; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\SystemFileAssociations\.gguf"; Flags: uninsdeletekeyifempty; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\SystemFileAssociations\.gguf\shell"; Flags: uninsdeletekeyifempty; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\SystemFileAssociations\.gguf\shell\Slipstream"; ValueType: string; ValueData: "Open with Slipstream"; Flags: uninsdeletekey; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\SystemFileAssociations\.gguf\shell\Slipstream"; ValueType: string; ValueName: "Icon"; ValueData: """{app}\slipstream.exe"""; Tasks: gguf
Root: HKCU; Subkey: "Software\Classes\SystemFileAssociations\.gguf\shell\Slipstream\command"; ValueType: string; ValueData: """{app}\slipstream.exe"" ""%1"""; Tasks: gguf

[Run]
Filename: "{app}\slipstream.exe"; Description: "Start Slipstream"; Flags: nowait postinstall skipifsilent

[Code]
const
  StepMs = 250;
  CloseWithinMs = 20000;

var
  DeletesUserFiles: Boolean;

function UserFiles: String;
begin
  Result := ExpandConstant('{localappdata}\Slipstream');
end;

function IsRunning: Boolean;
begin
  Result := CheckForMutexes('{#RunningMutex}');
end;

{ Without /F this asks the window to close, as its own button does: chats are saved and the engine ends.
  If the window stays, AppMutex asks the user to close it. }
procedure CloseSlipstream;
var
  Code, Waited: Integer;
begin
  if not Exec(ExpandConstant('{sys}\taskkill.exe'), '/IM slipstream.exe', '', SW_HIDE, ewWaitUntilTerminated, Code) then
    Exit;
  Waited := 0;
  while IsRunning and (Waited < CloseWithinMs) do
  begin
    Sleep(StepMs);
    Waited := Waited + StepMs;
  end;
end;

function MayClose: Boolean;
begin
  Result := SuppressibleMsgBox('Slipstream is running and will be closed first. An answer that is being written will be cut off.',
    mbConfirmation, MB_OKCANCEL, IDOK) = IDOK;
end;

function InitializeSetup: Boolean;
begin
  Result := True;
  if IsRunning then
  begin
    Result := WizardSilent or MayClose;
    if Result then
      CloseSlipstream;
  end;
end;

function WantsToDelete: Boolean;
begin
  Result := (not UninstallSilent) and DirExists(UserFiles) and (SuppressibleMsgBox(
    'Keep your chats, settings and downloaded models?' + #13#10#13#10 +
    'They are in ' + UserFiles + '.' + #13#10 +
    'Yes: Slipstream will find them if you install it again.' + #13#10 +
    'No: they are permanently deleted. Models in other folders are never deleted.',
    mbConfirmation, MB_YESNO, IDYES) = IDNO);
end;

{ The access token for Hugging Face is stored in Windows' credential manager (app/models/hub/network.py). }
procedure DeleteUserFiles;
var
  Code: Integer;
begin
  DelTree(UserFiles, True, True, True);
  Exec(ExpandConstant('{sys}\cmdkey.exe'), '/delete:Slipstream', '', SW_HIDE, ewWaitUntilTerminated, Code);
end;

procedure CurUninstallStepChanged(Step: TUninstallStep);
begin
  case Step of
    usAppMutexCheck:
      if IsRunning and (UninstallSilent or MayClose) then
        CloseSlipstream;
    usUninstall:
      DeletesUserFiles := WantsToDelete;
    usPostUninstall:
      if DeletesUserFiles then
        DeleteUserFiles;
  end;
end;
