"""`lockstep serve` in a browser, by clicking; and who may see it."""

import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import ECONNREFUSED
from typing import Any

import pytest

import lockstep
from tests.support.browser import headless
from tests.support.command_line import COMMAND
from tests.support.commands import HANGS, processes, until

pytest.importorskip("nicegui")
SET = ["--set", "stop.epochs=1", "--set", "workload.model=mlp"]


@contextmanager
def served(*arguments: object) -> Iterator[str]:
    """The address of the page; in the end Ctrl-C ends it, and nothing is left."""
    command = [*COMMAND, "serve", *map(str, arguments)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as server:
        try:
            said = server.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\S{32}/", said)
            assert found, server.stderr.read()
            yield found[0]
            server.send_signal(signal.SIGINT)
            assert server.wait(HANGS) == 0
            assert server.stderr.read() == ""
            assert until(lambda: not processes(server.pid), HANGS), processes(server.pid)
        finally:
            server.kill()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with headless(tmp_path_factory.mktemp("profile")) as found:
        found.set_window_size(1400, 1600)
        yield found


def wait(condition: Callable[[], Any]) -> Any:
    """What holds in the end; the page may change while it is looked at."""

    def holds() -> Any:
        with suppress(Exception):
            return condition()
        return None

    found = until(holds, HANGS)
    assert found, condition
    return found


def text(browser: Any) -> str:
    return str(browser.find_element("tag name", "body").text)


def button(browser: Any, name: str) -> None:
    wait(lambda: [x for x in browser.find_elements("tag name", "button") if x.text == name])[0].click()


def write(browser: Any, label: str, words: str) -> None:
    """Into the field of that name, as a person does."""
    field = wait(lambda: browser.find_element("css selector", f'input[aria-label="{label}"]'))
    field.send_keys("\ue009a\ue000", words, "\ue007")  # Ctrl-A, and Enter in the end


def figure(browser: Any, side: int, name: str) -> str:
    """One of the figures of a side."""
    heads = browser.find_elements("css selector", ".lockstep-head")
    lines = heads[side].text.split("\n")
    return str(lines[lines.index(name) + 1])


@pytest.mark.slow
def test_settings_are_played_with(browser: Any) -> None:
    with served("quickstart", *SET) as address:
        browser.get(address)
        before = wait(lambda: figure(browser, 0, "throughput"))
        scenario = lockstep.load("quickstart", [word for word in SET if word != "--set"])
        rate = lockstep.simulate(scenario.sizes_only).metrics["throughput"]
        assert before == f"{rate:,.0f} samples/s"
        wait(lambda: browser.find_elements("css selector", "img[alt^='Gantt']"))
        assert "measured" not in text(browser)

        write(browser, "A: bandwidth", "10 Mbit/s")
        wait(lambda: figure(browser, 0, "throughput") != before)
        write(browser, "A: workers", "two")
        wait(lambda: "workers: 'two' is not a number" in text(browser))
        write(browser, "A: workers", "2")
        wait(lambda: figure(browser, 0, "throughput"))

        slider = browser.find_element("css selector", '[aria-label="A: batch size, slider"]')
        slider.click()  # in the middle
        field = 'input[aria-label="A: batch size"]'
        wait(lambda: browser.find_element("css selector", field).get_property("value") == "64")
        browser.find_element("css selector", '[aria-label="A: strategy"]').click()
        choices = wait(lambda: browser.find_elements("css selector", ".q-menu .q-item"))
        next(each for each in choices if each.text == "asynchronous").click()
        wait(lambda: "every gradient as it comes; nobody waits" in text(browser))
        wait(lambda: figure(browser, 0, "throughput"))

        button(browser, "Compare with B")
        wait(lambda: figure(browser, 1, "throughput"))
        wait(lambda: "The same: no key and no metric differs." in text(browser))
        write(browser, "B: bandwidth", "1 Gbit/s")
        wait(lambda: "cluster.network.bandwidth" in text(browser))
        wait(lambda: browser.find_elements("css selector", "img[alt^='From the time']"))
        button(browser, "Remove B")
        wait(lambda: "Setting B" not in text(browser))

        wait(lambda: browser.find_elements("css selector", "img[alt^='Gantt']"))
        button(browser, "Simulate learning")
        wait(lambda: "held-out loss" in text(browser))
        wait(lambda: browser.find_elements("css selector", "img[alt^='Held-out']"))

        wait(lambda: browser.find_element("css selector", '[aria-label="A: YAML"]')).click()
        field = wait(lambda: browser.find_element("css selector", 'textarea[aria-label="A as YAML"]'))
        yaml = wait(lambda: field.is_displayed() and field.get_property("value"))
        assert "bandwidth: 1250000.0 B/s" in yaml
        field.send_keys("\ue009a\ue000", "name: [")
        button(browser, "Open this YAML")
        wait(lambda: "the text:1: " in text(browser))
        whole = "name: mine\ncluster: {workers: 3, compute: {time: {distribution: constant, value: 1 s}}}\n"
        whole += "workload: {parameters: 1000, batch_size: 8}\nstrategy: all-reduce\nstop: {steps: 5}"
        field.send_keys("\ue009a\ue000", whole)
        button(browser, "Open this YAML")
        wait(lambda: figure(browser, 0, "throughput") == "24 samples/s")
        workers = browser.find_element("css selector", 'input[aria-label="A: workers"]')
        assert workers.get_property("value") == "3"
        assert browser.get_log("browser") == []
        sent = [entry["message"] for entry in browser.get_log("performance")]
        hosts = {host for line in sent for host in re.findall(r'"url":"(?:https?|wss?)://([^/"]+)', line)}
        assert hosts == {address.split("/")[2]}  # all that it needs comes from here


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page of a folder with two runs."""
    path = tmp_path_factory.mktemp("results")
    for bandwidth in ("1", "10"):
        chosen = ["cluster.workers=2", "stop.steps=3", f"cluster.network.bandwidth={bandwidth} Gbit/s"]
        lockstep.simulate(lockstep.load("sizes-only", chosen)).save(path / bandwidth)
    with served(path) as address:
        yield address


@pytest.mark.slow
def test_the_runs_of_a_folder(browser: Any, folder: str) -> None:
    browser.get(folder)
    rows = ".ag-center-cols-container .ag-row"
    wait(lambda: len(browser.find_elements("css selector", rows)) == 2)
    fields = browser.find_elements("css selector", ".ag-floating-filter-input input")
    fields[0].send_keys("10")
    wait(lambda: len(browser.find_elements("css selector", rows)) == 1)
    wait(lambda: browser.find_element("css selector", f"{rows} .ag-cell")).click()
    wait(lambda: "Predicted: 10, sizes-only, asynchronous" in text(browser))
    wait(lambda: "samples/s" in text(browser) and browser.find_elements("css selector", "img[alt='gantt']"))


@pytest.mark.slow
def test_only_those_who_know_the_address_see_it(folder: str) -> None:
    port = int(folder.split(":")[2].split("/")[0])
    root, token = f"http://127.0.0.1:{port}", folder.split("/")[3]
    with urllib.request.urlopen(folder) as answer:
        assert answer.status == 200
        assert "set-cookie" not in answer.headers
    for path in ("/", "/other/", f"/{token[:-1]}/", "/_nicegui/", "/_nicegui_ws/socket.io/", "/docs"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(root + path)
        refused.value.close()
        assert refused.value.code == 403, path
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        head = f"Host: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
        stranger.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode())
        assert stranger.recv(100).startswith(b"HTTP/1.1 403")
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", port)) == ECONNREFUSED  # it listens at one address only
    taken = subprocess.run([*COMMAND, "serve", "--port", str(port)], capture_output=True, text=True)
    assert taken.returncode == 2
    assert (
        taken.stderr == f"error: --port: {port} cannot be had: Address already in use; give another, or 0\n"
    )
