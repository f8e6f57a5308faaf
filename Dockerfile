# The jobs with all that they need: docker build -t groupledger . && docker run --rm -v "$PWD/warehouse:/data/warehouse" groupledger
FROM python:3.11-slim-bookworm AS wheel

WORKDIR /source
COPY . .
RUN pip install --no-cache-dir "hatchling>=1.27" && python -m hatchling build -t wheel -d /wheel

FROM python:3.11-slim-bookworm

# A full runtime: Spark needs the JDK's incubator module of vectors, which Debian's package of 17 has.
# Its version is Debian's newest: a pinned one is gone from the mirrors with the next security update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

COPY requirements.txt /tmp/requirements.txt
COPY --from=wheel /wheel /tmp/wheel
RUN pip install --no-cache-dir --requirement /tmp/requirements.txt \
    && pip install --no-cache-dir --no-deps /tmp/wheel/*.whl \
    && rm -rf /tmp/wheel /tmp/requirements.txt

# Whoever runs it needs no right to write anywhere but to /data, not even a home.
RUN useradd --uid 10001 --home-dir /data --no-create-home groupledger \
    && install --directory --owner=10001 --group=10001 /data /var/cache/groupledger
ENV GROUPLEDGER_CACHE=/var/cache/groupledger
USER 10001
WORKDIR /data

# Delta's jars and the compiled loops are made here, once: a container starts without a network.
RUN groupledger --set-up

VOLUME /data
ENTRYPOINT ["tini", "--", "groupledger"]
CMD ["nightly"]
