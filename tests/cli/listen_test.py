#!/usr/bin/env python3
"""`headroom log --listen`: what Prometheus reads, and what slow, broken and many clients cannot do.

    listen_test.py HEADROOM FAKE_NVML SOURCE_DIR
"""
import os
import re
import signal
import select
import socket
import sys
import threading
import unittest

import metrics_server
from metrics_server import (OPENMETRICS, PATIENCE_S, classic, openmetrics, pids_are_ours, promtool, samples,
                            until)

HEADROOM = FAKE_NVML = ""
GIB = 1 << 30
QUICK = ("--interval", "50ms")
MEMORY = "nvmlDeviceGetMemoryInfo*"


def World(*arguments, **more):
    return metrics_server.World(HEADROOM, FAKE_NVML, *arguments, **more)


def cards(count, **more):
    return [{"total": "24GiB", "reserved": "300MiB", "utilization": 37, **more} for _ in range(count)]


class Formats(unittest.TestCase):
    def test_both_formats_carry_the_same_samples(self):
        with World(cards(2)) as world:
            server = world.listen(*QUICK)
            status, headers, text = server.ask("/metrics")
            self.assertEqual(status, 200)
            self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            _, headers, open_text = server.ask("/metrics", Accept=OPENMETRICS)
            self.assertEqual(headers["Content-Type"],
                             "application/openmetrics-text; version=1.0.0; charset=utf-8")
            found, open_found = samples(classic(text)), samples(openmetrics(open_text))
            self.assertEqual(set(found), set(open_found))
            for name in found:
                self.assertEqual([labels for labels, _ in found[name]],
                                 [labels for labels, _ in open_found[name]], name)

    def test_promtool_finds_nothing_to_complain_about(self):
        with World(cards(2)) as world:
            text = world.listen().ask("/metrics")[2]
            self.assertEqual(promtool("check", "metrics", text=text), "")

    def test_openmetrics_names_types_and_units(self):
        with World(cards(1)) as world:
            families = {f.name: f for f in openmetrics(world.listen().ask("/metrics", Accept=OPENMETRICS)[2])}
        self.assertEqual(families["headroom_gpu_memory_used_bytes"].unit, "bytes")
        self.assertEqual(families["headroom_gpu_utilization_ratio"].unit, "ratio")
        self.assertEqual(families["process_cpu_seconds"].type, "counter")
        self.assertEqual(families["headroom_build"].type, "info")
        for family in families.values():
            self.assertRegex(family.name, "^(headroom|process)_")
            self.assertNotEqual(family.documentation, "")

    def test_a_machine_of_eight_cards_has_at_most_200_series(self):
        with World(cards(8)) as world:
            found = world.listen("--processes").scrape()
        self.assertEqual(len(found["headroom_gpu_memory_used_bytes"]), 8)
        self.assertLessEqual(sum(map(len, found.values())), 200)
        labels = {label for series in found.values() for own, _ in series for label in own}
        self.assertLessEqual(labels, {"index", "uuid", "name", "user", "version"})

    def test_a_value_that_the_driver_does_not_know_is_left_out(self):
        with World(cards(1, temperature=None, power_mw=None)) as world:
            found = world.listen().scrape()
        self.assertIn("headroom_gpu_utilization_ratio", found)
        self.assertNotIn("headroom_gpu_temperature_celsius", found)
        self.assertNotIn("headroom_gpu_power_watts", found)

    def test_it_tells_of_itself(self):
        with World(cards(1)) as world:
            server = world.listen()
            first, second = server.scrape(), server.scrape()
            version = world.run("version")[1].split()[1]
        self.assertEqual(first["headroom_build_info"], [({"version": version}, 1)])
        self.assertEqual(first["headroom_scrapes_total"][0][1] + 1, second["headroom_scrapes_total"][0][1])
        self.assertGreater(second["process_cpu_seconds_total"][0][1], 0)
        self.assertGreater(second["process_resident_memory_bytes"][0][1], 1 << 20)
        self.assertGreater(second["process_open_fds"][0][1], 3)


class Contents(unittest.TestCase):
    @unittest.skipUnless(pids_are_ours(), "the driver's process numbers are not ours here")
    def test_a_process_that_has_ended_is_gone_at_the_next_scrape(self):
        with World(cards(1)) as world:
            jobs = [world.holder() for _ in range(3)]
            world.driver(cards(1, processes=[{"pid": job.pid, "used": "1GiB"} for job in jobs]))
            server = world.listen("--processes", "--interval", "10m")  # one list for the whole test
            name = "headroom_gpu_process_memory_used_bytes"
            self.assertEqual([value for _, value in server.scrape()[name]], [GIB] * 3)
            jobs[1].kill()
            jobs[1].wait()
            self.assertEqual([labels["pid"] for labels, _ in server.scrape()[name]],
                             [str(jobs[0].pid), str(jobs[2].pid)])

    def test_leases_and_the_queue(self):
        with World(cards(1)) as world:
            server = world.listen(*QUICK)
            holder = world.start("run", "--need", "20GiB", "--", "sleep", "1000")
            until("a lease", lambda: server.scrape()["headroom_leases"][0][1] == 1)
            world.start("run", "--need", "10GiB", "--", "true")
            until("a waiter", lambda: server.scrape()["headroom_waiting_jobs"][0][1] == 1)
            found = server.scrape()
            self.assertEqual([value for _, value in found["headroom_lease_reserved_bytes"]], [20 * GIB])
            self.assertEqual(found["headroom_waiting_need_bytes"][0][1], 10 * GIB)
            usable = found["headroom_gpu_memory_usable_bytes"][0][1]
            self.assertLess(usable, 4 * GIB)
            holder.terminate()
            until("no lease", lambda: "headroom_lease_reserved_bytes" not in server.scrape())

    def test_jobs_and_the_ooms_that_they_survived(self):
        with World(cards(1)) as world:
            server, job = world.listen(*QUICK), world.holder()
            world.publish_status(job.pid)
            found, own = server.scrape(), {"pid": str(job.pid), "what": "train gpt2"}
            self.assertEqual(found["headroom_job_step"], [(own, 17)])
            self.assertEqual(found["headroom_job_ooms_survived_total"], [(own, 2)])
            self.assertEqual(found["headroom_job_rows_per_second"], [(own, 81.5)])
            job.kill()
            job.wait()
            self.assertNotIn("headroom_job_step", server.scrape())

    def test_a_file_is_written_beside(self):
        with World(cards(1)) as world:
            server = world.listen(*QUICK, "--out", world.path("gpus.csv"))
            until("rows", lambda: os.path.getsize(world.path("gpus.csv")) > 200)
            self.assertIn("headroom_gpu_memory_used_bytes", server.scrape())
            server.end()
            self.assertEqual(server.process.stdout.read(), "")


class Health(unittest.TestCase):
    def test_a_hanging_card(self):
        hang = {"function": MEMORY, "card": 0, "after": 2, "do": "hang"}
        with World(cards(2), [hang]) as world:
            server = world.listen("--interval", "100ms")
            status, _, text = until("503", lambda: (a := server.ask("/healthz"))[0] == 503 and a)
            self.assertRegex(text, r"^GPU 0: no answer for [\d.]+ s\n$")

            def ages():
                return [value for _, value in server.scrape()["headroom_gpu_sample_age_seconds"]]
            first = ages()
            until("ages that grow", lambda: ages()[0] > first[0] + 0.1)
            self.assertGreater(ages()[0], ages()[1])
            found = server.scrape()
            self.assertEqual(found["headroom_driver_up"][0][1], 0)
            used = found["headroom_gpu_memory_used_bytes"]
            self.assertEqual([labels["index"] for labels, _ in used], ["1"], "the other card goes on")
            world.driver(cards(2))
            until("200", lambda: server.ask("/healthz")[0] == 200)

    def test_a_driver_that_does_not_even_open(self):
        with World(cards(1), [{"function": "nvmlInit*", "do": "hang"}]) as world:
            server = world.listen()
            status, _, text = server.ask("/healthz")
            self.assertEqual(status, 503)
            self.assertIn("has not answered", text)
            self.assertEqual(server.scrape()["headroom_driver_up"], [({}, 0)])

    def test_a_driver_that_answers_and_none(self):
        with World(cards(1)) as world:
            self.assertEqual(world.listen().ask("/healthz")[::2], (200, "ok\n"))
        with World() as world:
            server = world.listen()
            status, _, text = server.ask("/healthz")
            self.assertEqual(status, 200)
            self.assertRegex(text, "^ok: no driver: .*\n$")
            self.assertEqual(server.scrape()["headroom_driver_up"], [({}, 0)])


class Http(unittest.TestCase):
    def test_methods_and_pages(self):
        with World(cards(1)) as world:
            server = world.listen()
            self.assertIn('href="/metrics"', server.ask("/")[2])
            self.assertEqual(server.ask("/nothing")[0], 404)
            self.assertEqual(server.ask("/metrics?a=b")[0], 200)
            status, headers, text = server.ask("/metrics", "HEAD")
            self.assertEqual((status, text), (200, ""))
            self.assertGreater(int(headers["Content-Length"]), 1000)
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                status, headers, _ = server.ask("/metrics", method, body="x" * 4000)
                self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"), method)

    def test_ranges_and_compression_are_not_served(self):
        with World(cards(1)) as world:
            server = world.listen()
            many = "bytes=" + ",".join(["0-"] * 2000)
            for headers in ({"Range": "bytes=0-9"}, {"Range": many}, {"Accept-Encoding": "gzip, br"}):
                status, answer, text = server.ask("/metrics", **headers)
                self.assertEqual((status, answer["Content-Encoding"]), (200, None))
                self.assertIn("headroom_build_info", text)


class Clients(unittest.TestCase):
    """The driver is still asked, every scrape is answered, and nothing is left behind."""

    def scrape_often(self, server, times=1000, at_once=100):
        failures = []

        def scrape():
            for _ in range(times // at_once):
                try:
                    status, _, text = server.ask("/metrics")
                    if status != 200 or "headroom_build_info" not in text:
                        failures.append((status, text))
                except OSError as error:
                    failures.append(error)
        threads = [threading.Thread(target=scrape) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_a_thousand_scrapes_a_hundred_at_once(self):
        with World(cards(8)) as world:
            server = world.listen(*QUICK)
            descriptors = server.descriptors()
            self.scrape_often(server)
            self.assertEqual(server.scrape()["headroom_scrapes_total"][0][1], 1001)
            self.assert_nothing_is_left(server, descriptors, lambda: self.scrape_often(server, 500))

    def assert_nothing_is_left(self, server, descriptors, round):
        """The heap of each of its threads grows until it has met its worst moment; a leak grows with every round."""
        until("descriptors as before", lambda: server.descriptors() <= descriptors)
        grown = []
        while not grown or grown[-1] > 64 and len(grown) < 10:
            before = server.allocated_kib()
            round()
            grown.append(server.allocated_kib() - before)
        if not os.environ.get("HEADROOM_SANITIZED"):  # a sanitizer keeps freed memory
            self.assertLessEqual(grown[-1], 64, f"KiB in each round: {grown}")
        until("descriptors as before", lambda: server.descriptors() <= descriptors)

    def misbehave(self, server):
        request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n"
        kinds = [b"", b"G", request, request + b"\r\n", b"\0\xff" * 2000, b"\r\n" * 1000, b"GET " + b"a" * 20000,
                 request + b"Range: bytes=" + b"0-1," * 1900 + b"0-1\r\n\r\n",
                 request + b"A: b\r\n" * 3000, request + b"A: " + b"b" * 100000,
                 b"POST /metrics HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n"]
        clients = []
        for kind in kinds * 10:
            try:
                clients.append(server.connect(kind))
            except OSError:  # closed before all of it was sent
                pass
        return clients + [server.connect() for _ in range(500)]

    def test_slow_broken_and_idle_clients_hurt_nobody(self):
        with World(cards(8)) as world:
            server = world.listen(*QUICK)
            descriptors = server.descriptors()

            def round():
                clients = self.misbehave(server)
                before = world.driver_calls()
                self.assertEqual(server.ask("/healthz")[::2], (200, "ok\n"), "in spite of them")
                self.scrape_often(server, 200)
                until("a driver that is still asked", lambda: world.driver_calls() > before + 80)
                until("descriptors as before", lambda: server.descriptors() <= descriptors)
                for client in clients:
                    client.close()
            self.assert_nothing_is_left(server, descriptors, round)

    def test_a_client_that_sends_or_reads_a_byte_at_a_time_is_given_up(self):
        with World(cards(8)) as world:
            server = world.listen(*QUICK)
            client, request = server.connect(), b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 10000
            with self.assertRaises(OSError):  # long before all of it is sent
                for at in range(len(request)):
                    client.sendall(request[at:at + 1])
                    if select.select([client], [], [], 0.001)[0]:
                        raise OSError("answered or closed")
            readers = [slow_reader(server) for _ in range(50)]
            self.scrape_often(server, 100)
            for reader in readers:
                self.assertEqual(reader.recv(1), b"H")
            for one in [client, *readers]:
                one.close()

    def test_it_ends_at_once_with_clients_connected(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with World(cards(1)) as world:
                server = world.listen()
                clients = [server.connect(b"GET /met") for _ in range(50)] + [slow_reader(server)]
                self.assertEqual(server.ask("/healthz")[0], 200)
                self.assertEqual(server.end(number), code)
                for client in clients:
                    client.close()


def slow_reader(server):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.settimeout(PATIENCE_S)
    client.connect(server.address)
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    return client


class Addresses(unittest.TestCase):
    def test_loopback_unless_an_address_is_given(self):
        with World(cards(1)) as world:
            for address, shown in ((":0", "127.0.0.1"), ("0.0.0.0:0", "0.0.0.0"), ("127.0.0.1:0", "127.0.0.1")):
                server = world.listen(address=address)
                self.assertRegex(server.url, "^http://" + re.escape(shown) + r":\d+/metrics$")
                self.assertEqual(server.ask("/healthz")[0], 200)
            server = world.listen(address="localhost:0")
            self.assertRegex(server.url, r"^http://(127\.0\.0\.1|\[::1\]):\d+/metrics$")

    @unittest.skipUnless(os.path.exists("/proc/net/if_inet6") and open("/proc/net/if_inet6").read(), "no IPv6 here")
    def test_ipv6_in_brackets(self):
        with World(cards(1)) as world:
            self.assertEqual(world.listen(address="[::1]:0").ask("/healthz")[0], 200)
            server = world.listen(address="[::]:0")
            server.address = ("127.0.0.1", server.address[1])
            self.assertEqual(server.ask("/healthz")[0], 200, "IPv4 too")

    def test_a_port_in_use(self):
        with World(cards(1)) as world:
            port = world.listen().address[1]
            code, out, err = world.run("log", "--listen", f":{port}")
            self.assertEqual((code, out), (75, ""))
            self.assertIn(f"port {port} of 127.0.0.1 is in use; try another port", err)

    def test_what_makes_no_sense_is_refused(self):
        with World(cards(1)) as world:
            for words, sentence in ((["9400"], "[ADDRESS]:PORT"), ([":70000"], "[ADDRESS]:PORT"),
                                    ([":"], "[ADDRESS]:PORT"), (["::1:9400"], "brackets"), ([":x"], "[ADDRESS]:PORT"),
                                    (["192.0.2.1:0"], "an address of this machine"),
                                    (["no.such.host.invalid:0"], "an address of this machine"),
                                    ([":0", "--format", "ndjson"], "--out"), ([":0", "--rotate", "1MiB"], "--out")):
                code, out, err = world.run("log", "--listen", *words)
                self.assertEqual((code, out), (64, ""), words)
                self.assertIn(sentence, err)


if __name__ == "__main__":
    HEADROOM, FAKE_NVML = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
