"""Takes docs/serve.png, a screenshot of the page of `lockstep serve quickstart`, with a headless Chromium."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

from PIL import Image
from selenium import webdriver

DOCS = Path(__file__).parents[1]
SIZE = (1400, 1100)
_PATIENCE_S = 300
_SERVE = "from lockstep.cli import main; main()"


def screenshot(address: str, file: Path) -> None:
    """The page, when its Gantt chart is there."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        browser.set_window_size(*SIZE)
        browser.get(address)
        for _ in range(_PATIENCE_S):
            if browser.execute_script("return document.querySelectorAll('img').length"):
                break
            sleep(1)
        sleep(3)  # for what is drawn, and moved, last
        browser.save_screenshot(str(file))
    finally:
        browser.quit()


if __name__ == "__main__":
    command = [sys.executable, "-c", _SERVE, "serve", "quickstart"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        TemporaryDirectory() as folder,
    ):
        assert server.stdout is not None
        found = re.search(r"http://\S+/", server.stdout.readline())
        assert found is not None
        try:
            screenshot(found[0], Path(folder) / "serve.png")
        finally:
            server.send_signal(signal.SIGINT)
        with Image.open(Path(folder) / "serve.png") as whole:
            whole.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(
                DOCS / "serve.png", optimize=True
            )
