# The jobs with all that they need, for one machine and for Kubernetes (conf/clusters/kubernetes.conf):
#   docker build -t groupledger . && docker run --rm -v ledger:/data groupledger nightly
FROM python:3.11-slim-bookworm

# Debian's runtime of Java 17 has the JDK's incubator module of vectors, which Spark needs.
# Its version is Debian's newest: a pinned one is gone from the mirrors with the next security update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

# The environment, Delta's jars and the compiled loops are made here, once: a container starts without a network.
WORKDIR /opt/groupledger
COPY . .
RUN ./spark-submit.sh --set-up run

# Whoever runs it may write to /data alone, and to the folder of compiled loops, since numba asks for that.
RUN useradd --uid 10001 --home-dir /data --no-create-home groupledger \
    && install --directory --owner=10001 --group=10001 /data \
    && chown --recursive 10001 .cache/numba
USER 10001
WORKDIR /data
VOLUME /data

ENTRYPOINT ["tini", "--", "/opt/groupledger/conf/clusters/container.sh"]
CMD ["nightly"]
