"""What pyproject.toml cannot say: a wheel carries ``resources/`` inside the package, where ``app.system`` finds it."""

from setuptools import find_namespace_packages, find_packages, setup

folders = find_namespace_packages("resources", exclude=["starter"])  # a model, which is packaged by itself
resources = ["app.resources", *(f"app.resources.{folder}" for folder in folders)]

setup(
    packages=[*find_packages(include=["app", "app.*"]), *resources],
    package_dir={"app.resources": "resources"},
    package_data={package: ["*"] for package in resources},
)
