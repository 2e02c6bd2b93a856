"""HTTPS of two workers and of the admin listener, with one reload of the certificate for all."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx

from tests.journeys.process import serving
from tests.journeys.workers import BODY, CALLS, files
from tests.support.certificates import served_certificate, trusting, write_certificate
from tests.support.ports import free_port
from tests.support.serving import WAIT_SECONDS, eventually


def test_all_workers_and_the_admin_listener_use_the_new_certificate(tmp_path: Path) -> None:
    admin = free_port()
    write_certificate(tmp_path, "ec")
    tls = "tls: {certificate: server.crt, key: server.key, admin: true}"
    with serving(tmp_path, files(f'workers: 2, admin: "127.0.0.1:{admin}", {tls}')) as process:
        assert eventually(lambda: f"https://127.0.0.1:{process.port}/v1" in process.log)
        write_certificate(tmp_path, "ec")
        new = (tmp_path / "server.crt").read_text()
        process.signal(signal.SIGHUP)
        ports = [process.port] * 8 + [admin] * 4
        assert eventually(lambda: {served_certificate(port) for port in ports} == {new}), process.log
        with httpx.Client(verify=trusting(tmp_path / "server.crt"), trust_env=False, timeout=60) as https:
            assert https.post(f"https://localhost:{process.port}{CALLS}", json=BODY).status_code == 200
            assert "gateway_workers 2.0" in https.get(f"https://localhost:{admin}/metrics").text
            assert https.get(f"https://localhost:{admin}/health/ready").status_code == 200
            process.signal(signal.SIGTERM)
            assert process.process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in process.log
