# One command each: `make check` is what a commit should pass; `.ci/run` runs most parts of `make test-all`.
PYTHON := .venv/bin/python

IN_TEST := not (nights or conformance or simulator or spark)
PYTEST := PYTHONPATH=. $(PYTHON) -m pytest -q
PARALLEL := $(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -p no:randomly

# a process that compiles a module leaves it compiled for the next: tests start hundreds
unexport PYTHONDONTWRITEBYTECODE

CYCLONEDX := .cache/cyclonedx

.PHONY: sbom test-env test test-nights test-conformance test-simulator test-session test-all test-spark test-live check bench fuzz methods faults mutants package-test reference docs

test-env: ## The environment with what tests and checks need.
	@./spark-submit.sh --set-up dev

test: test-env ## What a change must pass: rules on rows, jobs, the commands of the documentation, one night of a kind. Three processes (one often waits for a JVM).
	$(PARALLEL) -m "$(IN_TEST)"

test-nights: test-env ## Whole nights over logs of all kinds, and killed ones.
	$(PARALLEL) -m nights

test-conformance: test-env ## Recordings of real brokers, what commands print of one, traces of Kafka's own classes; real brokers, clusters, stores and a browser in short.
	$(PARALLEL) -m conformance

test-simulator: test-env ## simulate and whatif: random and shipped scenarios, run by the live coordinators.
	$(PARALLEL) -m simulator

test-session: test-env ## Jobs, SQL and the Python API in a Spark session.
	$(PARALLEL) -m spark

test-all: test test-nights test-conformance test-simulator test-session ## All of these.

test-spark: test-session ## And the API on Spark 3.5 to 4.3, each in an environment of its own (3 GB, once): every table of all recordings.
	PYTHONPATH=. $(PYTHON) -m tests.sparks $(SPARKS)

test-live: test-env ## Real brokers and clients at full length (Kafka 4.3.1 from Maven): all scenarios, ten busy minutes (MINUTES), three brokers, a Spark cluster, HDFS, S3, whole nights over odd logs.
	$(PYTEST) --long $(if $(MINUTES),--minutes $(MINUTES)) tests/live tests/cluster tests/stores tests/groupledger tests/jobs tests/cases tests/conformance tests/test_spark_submit.py

check: test-env ## Format, lint, types, imports, shell, and `make test` in another order.
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy --strict
	.venv/bin/lint-imports
	@if command -v shellcheck >/dev/null; then shellcheck spark-submit.sh .ci/run; else echo "shellcheck is not installed: skipped"; fi
	$(PYTEST) -m "$(IN_TEST)"

bench: test-env ## Timings of the hot paths.
	PYTHONPATH=. $(PYTHON) -m tests.benchmarks $(if $(LOGS),--logs $(LOGS))

fuzz: test-env ## A million damaged inputs, 10,000 random histories in runs, 300 random clusters, also in nights, 200 restless groups and 200 stories of whatif, 1,000 random queries, and thousands of random lives of each live group.
	PYTHONPATH=. $(PYTHON) -m tests.fuzz --mutants 1000000
	$(PYTEST) --count 10000 tests/coordinator_core/history tests/coordinator_core/inference
	$(PYTEST) --count 30 tests/cases/test_grown_topics.py
	$(PYTEST) --count 100 tests/simulator/simulation/test_simulation.py tests/cases/test_unowned.py -k 'restless or truth'
	$(PYTEST) --count 2000 tests/cases/test_copies_at_random.py tests/cases/test_rows_of_dumps.py
	$(PYTEST) --count 500 tests/cases/test_damage_at_random.py
	$(PYTEST) --count 300 tests/cases/test_truth_at_random.py tests/cases/test_truth_of_views.py
	$(PYTEST) --count 200 tests/cases/test_whatif_at_random.py
	$(PYTEST) --count 300 tests/jobs/gold/test_incremental_audit.py -k random_clusters
	$(PYTEST) --long --hypothesis-profile exhaustive tests/coordinator_core/stateful

methods: test-env ## How often each method of gold's claims is right, in a table: over the recordings, and 300 random clusters (CLUSTERS) with their damaged logs.
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -p no:randomly --count $(or $(CLUSTERS),300) tests/cases/test_truth_at_random.py tests/cases/test_truth_of_views.py tests/conformance/test_gold_groups.py tests/conformance/test_gold_shares.py tests/conformance/test_client_libraries.py

faults: test-env ## kill -9 of drivers, Python workers and executors, a run each, and 36 runs with other seeds and orders: about 45 minutes.
	$(PYTEST) --long tests/faults

mutants: test-env ## Faults planted in a copy of the core (tests/mutants/faults.txt): every one is found. MUTANT="text" for those with it in their names.
	PYTHONPATH=. $(PYTHON) -m tests.mutants $(if $(MUTANT),"$(MUTANT)")

package-test: test-env ## Wheel and sdist, installed by pip into an empty environment each: `groupledger nightly`, a notebook with the API, and the API by --py-files.
	$(PYTEST) --long tests/test_packaging.py

reference: test-env ## Pages of the documentation that follow from declarations: tables, jobs and options.
	PYTHONPATH=. $(PYTHON) -m tools.reference

sbom: test-env ## The packages of the lock with their licences, for the wheel: groupledger.cdx.json.
	.venv/bin/uv pip install -q --target $(CYCLONEDX) cyclonedx-python-lib==11.12.0
	PYTHONPATH=.:$(CYCLONEDX) $(PYTHON) -m tools.sbom

docs: reference ## The documentation as a site in build/site: every link and anchor leads somewhere.
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet --site-dir build/site
	@echo "open build/site/index.html"
