# Installs Slipstream silently, runs its self-test, removes it silently, and sees that the user's files are still there.
#   packaging\windows\check-setup.ps1 dist\slipstream-0.2.0-windows-x86_64-setup.exe
param([Parameter(Mandatory)][string]$Setup)
$ErrorActionPreference = 'Stop'
$program = Join-Path $env:LOCALAPPDATA 'Programs\Slipstream'
$userFiles = Join-Path $env:LOCALAPPDATA 'Slipstream'
$quiet = '/VERYSILENT', '/SUPPRESSMSGBOXES', '/NORESTART'

function Invoke-Program([string]$File, [string[]]$Arguments) {
    $process = Start-Process -FilePath $File -ArgumentList $Arguments -Wait -PassThru -NoNewWindow
    if ($process.ExitCode -ne 0) { throw "$File ended with exit status $($process.ExitCode)." }
}

function Assert-True([bool]$Holds, [string]$Otherwise) {
    if (-not $Holds) { throw $Otherwise }
}

Invoke-Program (Resolve-Path $Setup).Path $quiet
Assert-True (Test-Path 'HKCU:\Software\Classes\Slipstream.gguf') 'Models cannot be opened with Slipstream.'
Assert-True (-not (Get-ItemProperty 'HKCU:\Software\Classes\.gguf').'(default)') 'Slipstream made itself the default for models.'
foreach ($library in 'vcruntime140.dll', 'vcruntime140_1.dll', 'msvcp140.dll', 'vcomp140.dll') {
    Assert-True (Test-Path "$program\_internal\$library") "$library is not inside."
}
Invoke-Program "$program\slipstream-cli.exe" 'selftest'

New-Item -ItemType Directory -Force $userFiles | Out-Null
Set-Content "$userFiles\kept.txt" 'a chat'
Invoke-Program "$program\unins000.exe" $quiet
# The uninstaller goes on for a moment from a copy of itself.
for ($i = 0; $i -lt 120 -and (Test-Path $program); $i++) { Start-Sleep -Milliseconds 500 }
Assert-True (-not (Test-Path $program)) "$program is still there."
Assert-True (-not (Test-Path 'HKCU:\Software\Classes\Slipstream.gguf')) 'The registry still names Slipstream.'
Assert-True (Test-Path "$userFiles\kept.txt") "The user's files were deleted."
Remove-Item "$userFiles\kept.txt"
Write-Output 'Installed, tested and removed; the user''s files stayed.'
