"""The package on a clean system: installed, used, upgraded and removed as its users do. Run with ``make package-test``."""
