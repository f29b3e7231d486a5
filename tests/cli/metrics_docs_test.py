#!/usr/bin/env python3
"""The pages about metrics, against a real scrape in which every metric has a series: the table of
docs/reference/metrics.md, the queries of docs/grafana/headroom.json, the rules and the configuration of
docs/guides/watch-and-log.md.

    metrics_docs_test.py HEADROOM FAKE_NVML SOURCE_DIR
"""
import json
import pathlib
import re
import sys
import tempfile
import unittest

import metrics_server
from metrics_server import OPENMETRICS, openmetrics, promtool, until

HEADROOM = FAKE_NVML = ""
DOCS = pathlib.Path()
NAME = r"\b(?:headroom|process)_\w+"


def full_scrape():
    """Families by the names of their samples; all parts of a machine are at work."""
    with metrics_server.World(HEADROOM, FAKE_NVML, [{"total": "24GiB", "reserved": "300MiB"}]) as world:
        pid = world.holder().pid
        world.driver([{"total": "24GiB", "reserved": "300MiB", "processes": [{"pid": pid, "used": "1GiB"}]}])
        world.publish_status(pid)
        server = world.listen("--processes", "--interval", "50ms")
        world.start("run", "--need", "10GiB", "--", "sleep", "1000")

        def complete():
            families = openmetrics(server.ask("/metrics", Accept=OPENMETRICS)[2])
            found = {sample.name: (family, sample) for family in families for sample in family.samples}
            return found if "headroom_lease_reserved_bytes" in found else None
        return until("a lease", complete)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = full_scrape()
        cls.invisible = set()
        if not metrics_server.pids_are_ours():  # processes have no numbers, and thus no series
            cls.invisible = {"headroom_gpu_process_memory_used_bytes"}

    def test_the_table_is_the_scrape(self):
        text = (DOCS / "reference/metrics.md").read_text()
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\| (.+?) \| .*\|$", text, re.MULTILINE)
        table = {name: (kind, labels, meaning) for name, kind, labels, meaning in rows}
        self.assertEqual(len(table), len(rows), "a name twice")
        scrape = {name: (family.type, ", ".join(sample.labels), family.documentation)
                  for name, (family, sample) in self.found.items()}
        for name in self.invisible:
            table.pop(name)
        self.assertEqual(table, scrape)

    def test_every_query_of_the_dashboard_has_a_metric(self):
        dashboard = json.loads((DOCS / "grafana/headroom.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        queries += [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
        asked = {name for query in queries for name in re.findall(NAME, query)}
        self.assertLessEqual(asked, set(self.found) | self.invisible)
        for name in ("gpu_memory_used_bytes", "gpu_memory_usable_bytes", "gpu_process_memory_used_bytes",
                     "lease_reserved_bytes", "waiting_jobs", "job_loss", "job_ooms_survived_total"):
            self.assertIn("headroom_" + name, asked)
        for target in (t for panel in dashboard["panels"] for t in panel["targets"]):
            labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
            name = re.search(NAME, target["expr"])[0]
            if name not in self.invisible:
                self.assertLessEqual(set(labels), set(self.found[name][1].labels) | {"instance"}, name)

    def yaml_of_the_guide(self, first_key):
        text = (DOCS / "guides/watch-and-log.md").read_text()
        blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        return next(block for block in blocks if block.startswith(first_key))

    def check_by_promtool(self, text, *words):
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(text)
            file.flush()
            self.assertEqual(promtool("check", *words, file.name), "")

    def test_the_rules_of_the_guide(self):
        rules = self.yaml_of_the_guide("groups:")
        asked = set(re.findall(NAME, rules))
        self.assertGreater(len(asked), 2)
        self.assertLessEqual(asked, set(self.found))
        self.check_by_promtool(rules, "rules")

    def test_the_scrape_configuration_of_the_guide(self):
        self.check_by_promtool(self.yaml_of_the_guide("scrape_configs:"), "config")


if __name__ == "__main__":
    HEADROOM, FAKE_NVML, DOCS = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]) / "docs"
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
