"""The package on a clean system: installed, used, upgraded and removed as its users do (``make package-test``)."""
