"""Packaging settings that must be consistent."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_a_stable_abi_tag_is_claimed_only_by_a_module_that_is_built_for_it():
    claims = PROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert claims == ("STABLE_ABI" in cmake and "${SKBUILD_SABI_COMPONENT}" in cmake)


def test_the_oldest_python_has_a_wheel():
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert f"cp{oldest}-*" in PROJECT["tool"]["cibuildwheel"]["build"]


def test_the_image_installs_what_the_package_needs_to_predict():
    script = (ROOT / "packaging" / "make_image_root.sh").read_text()
    needed = {"numpy", "typer", "rich"}
    for requirement in PROJECT["project"]["dependencies"]:
        if requirement.split(">")[0] in needed:
            assert f'"{requirement}"' in script
