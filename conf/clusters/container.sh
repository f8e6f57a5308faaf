#!/usr/bin/env bash
# What a container of the image starts: a job, or what Spark on Kubernetes asks a container for by its first word. Spark
# says the rest in the environment (resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh).
set -euo pipefail

readonly HOME_FOLDER=/opt/groupledger
export SPARK_HOME=$HOME_FOLDER/.venv/lib/python3.11/site-packages/pyspark

case ${1:-} in
    driver)
        shift
        exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
            --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
            --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
        ;;
    executor)
        java_options=()
        for name in $(compgen -v SPARK_JAVA_OPT_ | sort -t_ -k4 -n); do java_options+=("${!name}"); done
        exec java ${java_options[@]+"${java_options[@]}"} "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
            -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
            --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
    *) exec "$HOME_FOLDER/spark-submit.sh" "$@" ;;
esac
