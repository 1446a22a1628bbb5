"""Which packages the wheel holds. Everything else about the project is in pyproject.toml.

The four floors are top-level folders in a checkout and one package when installed, so their names have to be mapped; finding the
packages here means that a new folder of a floor is in the wheel without anybody listing it.
"""

from setuptools import find_namespace_packages, find_packages, setup

FLOORS = ("ir", "lowering", "drivers")
PHOTOGRAPH = "examples.data"  # what `python -m vyre_py demo` works on
HEADERS = "include"  # what C includes: vyre.h

package_dir = {"vyre_py": "vyre_py", **{f"vyre_py.{top}": top for top in (*FLOORS, "examples", HEADERS)}}
packages = find_packages(include=["vyre_py", "vyre_py.*"])
packages += [f"vyre_py.{name}" for floor in FLOORS for name in find_packages(include=[floor, f"{floor}.*"])]
packages += [f"vyre_py.{name}" for name in find_namespace_packages(include=[PHOTOGRAPH, HEADERS])]

setup(
    packages=packages,
    package_dir=package_dir,
    package_data={
        "": ["py.typed", "*.pyi", "*.md", "*.schema.json"], f"vyre_py.{PHOTOGRAPH}": ["*.png"], f"vyre_py.{HEADERS}": ["*.h"],
        "vyre_py.export": ["*.js", "*.html"], "vyre_py.explore": ["*.js", "*.html", "*.css"],  # what runs in browsers
    },
    include_package_data=False,  # a file is in the wheel because it is named above, not because the source archive holds it
)
