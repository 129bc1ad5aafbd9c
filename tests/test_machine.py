import subprocess

import milepost
from milepost import machine


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_the_commit_is_that_of_our_own_checkout(tmp_path, monkeypatch):
    package = tmp_path / "src" / "milepost"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(milepost, "__file__", str(package / "__init__.py"))
    assert machine.source() == {"commit": None, "dirty": None}
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    found = machine.source()
    assert len(found["commit"]) == 40
    assert found["dirty"] is False
    assert machine.commit() == found["commit"]
    (package / "more.py").write_text("")
    assert machine.source() == {"commit": found["commit"], "dirty": True}
    assert machine.commit() == found["commit"] + "-dirty"

    # installed below another project's checkout
    installed = tmp_path / "lib" / "milepost"
    installed.mkdir(parents=True)
    monkeypatch.setattr(milepost, "__file__", str(installed / "__init__.py"))
    assert machine.source() == {"commit": None, "dirty": None}


def test_without_git_there_is_no_commit(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.source() == {"commit": None, "dirty": None}
    assert machine.commit() is None


def test_the_processor_has_its_makers_name(monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some   Processor @ 2 GHz\n")
    monkeypatch.setattr(machine, "CPU_INFO", info)
    assert machine.processor() == "Some Processor @ 2 GHz"
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "none")
    assert machine.processor()
    assert machine.cores() >= 1
