#!/usr/bin/env bash
# The one entry: ./spark-submit.sh [Spark's options] JOB [options]
#
# Two options of its own may stand among Spark's: --dry-run prints what would be submitted and to whom, and --home PATH
# says where the machines of a cluster have this project already (in an image, on a shared disk); without it they are
# sent the environment and the code.
#
# A wheel has it too, and starts it as the command `groupledger`: in the environment that it was installed into.
#
# Makes what is missing (a Python environment in .venv; Delta's jars, compiled loops and an archive of Spark's classes in
# .cache), then runs the job under the real spark-submit. The job's words reach it unchanged, and its exit code comes
# back: 0 done, 1 failed, 2 wrong arguments or something that must be installed first, 3 done but something was
# quarantined or is missing.
#
# The job is the parent of spark-submit, as in the pyspark shell (PYSPARK_SUBMIT_ARGS): spark-submit itself would give it
# no standard input and pour its stderr into its stdout. Only --deploy-mode cluster needs it the other way round.
set -euo pipefail

readonly PARSED=64 # what jobs/cli/app.py answers when there is a job to run

say() { printf '%s\n' "$*" >&2; }
fail() { # exit code, text
    say "error: $2"
    exit "$1"
}

project_root() {
    local path=${BASH_SOURCE[0]} folder
    while [[ -L $path ]]; do
        folder=$(cd -P -- "$(dirname -- "$path")" && pwd)
        path=$(readlink -- "$path")
        [[ $path == /* ]] || path=$folder/$path
    done
    cd -P -- "$(dirname -- "$path")" && pwd
}

# A Python that can make the environment: CPython 3.11 or newer, with venv and pip.
find_python() {
    local candidate
    for candidate in ${GROUPLEDGER_PYTHON:+"$GROUPLEDGER_PYTHON"} python3.11 python3.12 python3.13 python3 python; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v -- "$candidate"
            return
        fi
        if [[ -n ${GROUPLEDGER_PYTHON:-} ]]; then
            fail 2 "GROUPLEDGER_PYTHON=$GROUPLEDGER_PYTHON is not a Python 3.11 or newer with venv: correct it, or unset it"
        fi
    done
    fail 2 "no Python 3.11 or newer with venv: install one (Debian, Ubuntu: apt install python3.11-venv; macOS: brew install python@3.11), or name it in GROUPLEDGER_PYTHON"
}

# Java 17 or newer with the incubator's vector module, which Spark 4.2 loads at its start.
check_java() {
    local java modules version remedy
    remedy="install a full JDK 17 (Debian, Ubuntu: apt install openjdk-17-jdk-headless; macOS: brew install openjdk@17), and set JAVA_HOME if it is not the java on the PATH"
    if [[ -n ${JAVA_HOME:-} ]]; then
        java=$JAVA_HOME/bin/java
        [[ -x $java ]] || fail 2 "JAVA_HOME=$JAVA_HOME has no bin/java: $remedy"
    else
        java=$(command -v java) || fail 2 "no Java: $remedy"
    fi
    modules=$("$java" --list-modules 2>/dev/null) || modules=
    version=$(sed -n 's/^java\.base@\([0-9]*\).*/\1/p' <<<"$modules")
    if [[ -z $version || $version -lt 17 ]]; then
        fail 2 "$java is older than Java 17: $remedy"
    fi
    [[ $modules == *jdk.incubator.vector* ]] ||
        fail 2 "$java lacks the module jdk.incubator.vector, as cut-down runtimes do: $remedy"
    JVM=$java$modules
}

# One set-up at a time; whoever waited finds the work done.
locked() {
    mkdir -p "$CACHE" || fail 1 "$CACHE cannot be made: the first start keeps there what it fetches and compiles; name another folder in GROUPLEDGER_CACHE"
    if command -v flock >/dev/null 2>&1; then
        (flock 9 && "$@") 9>"$CACHE/set-up.lock"
    else
        "$@"
    fi
}

lock_sum() { cat -- "$@" | cksum; }

# is_ready STAMP FILE...: was the environment made from these lock files, and does its Python run?
is_ready() {
    local stamp=$VENV/.made-from-$1
    shift
    [[ -f $stamp && $(<"$stamp") == "$(lock_sum "$@")" ]] && "$VENV/bin/python" -c '' >/dev/null 2>&1
}

make_environment() { # STAMP FILE...
    is_ready "$@" && return
    local stamp=$1 python log=$CACHE/pip.log
    shift
    if ! "$VENV/bin/python" -c 'import pip' >/dev/null 2>&1; then
        python=$(find_python)
        say "Making the Python environment in .venv with $python (once, a minute or two) ..."
        rm -rf -- "$VENV"
        "$python" -m venv "$VENV" >"$log" 2>&1 || { tail -n 15 "$log" >&2; fail 1 "python -m venv failed"; }
    else
        say "Bringing the Python environment in .venv up to its lock ..."
    fi
    if ! "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input -r "${!#}" >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        fail 1 "pip could not install the packages (network? proxy?); all it said is in $log"
    fi
    lock_sum "$@" >"$VENV/.made-from-$stamp"
    [[ $stamp != dev ]] || lock_sum "$ROOT/requirements.txt" >"$VENV/.made-from-run"
}

spark_home() {
    if [[ $IS_INSTALLED == false ]]; then
        printf '%s\n' "$VENV"/lib/python3.*/site-packages/pyspark
    else
        "$PYTHON" -c 'from importlib.util import find_spec; print(find_spec("pyspark").submodule_search_locations[0])'
    fi
}

have_jars() { [[ -f $JARS/.made-from && $(<"$JARS/.made-from") == "$(lock_sum "$DEFAULTS")" ]]; }

# Delta's jars, resolved once by Spark itself from Maven and kept: later starts neither ask nor wait for it.
fetch_jars() {
    have_jars && return
    local log=$CACHE/ivy.log folder version
    say "Fetching Delta's jars (once) ..."
    version=$(sed -n 's/^spark\.jars\.packages.*:\([^: ]*\) *$/\1/p' "$DEFAULTS")
    # an empty Python file as the application: all that Spark does is to resolve the packages of spark-defaults.conf
    if ! PYSPARK_PYTHON=$PYTHON PYSPARK_DRIVER_PYTHON=$PYTHON "$SPARK_HOME/bin/spark-submit" --properties-file "$DEFAULTS" "$ROOT/jobs/__init__.py" >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        fail 1 "Delta's jars could not be fetched from Maven (network? proxy?); all that was said is in $log"
    fi
    folder=$(sed -n 's/^The jars for the packages stored in: //p' "$log")
    rm -rf -- "$JARS"
    mkdir -p "$JARS"
    cp -- "$folder"/io.delta_*-"$version".jar "$JARS"/ ||
        fail 1 "Maven gave no jars of Delta $version; all that was said is in $log"
    lock_sum "$DEFAULTS" >"$JARS/.made-from"
}

# What numba compiled is kept by the code it was compiled from: its own check looks at one file, not at what that calls.
code_sum() { find "$ROOT"/{coordinator_core,jobs/delta/parquet} -name '*.py' -print0 | LC_ALL=C sort -z | xargs -0 cat | cksum | tr ' ' -; }

packed_code_sum() {
    find "$ROOT"/{schemas,coordinator_core,jobs,conf} -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 cat |
        cksum | tr ' ' -
}

is_compiled() { [[ -f $NUMBA_CACHE_DIR/.compiled ]]; }

compile_loops() {
    is_compiled && return
    local log=$CACHE/compile.log
    say "Compiling the hot loops (once, half a minute) ..."
    rm -rf -- "$COMPILED"
    mkdir -p "$NUMBA_CACHE_DIR"
    if ! (cd "$IMPORTS" && "$PYTHON" -m "${PACKAGE}jobs.operations.compile_kernels") >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        fail 1 "the hot loops could not be compiled; all that was said is in $log"
    fi
    touch "$NUMBA_CACHE_DIR/.compiled"
}

# The classes of Spark as a JVM leaves them at its end, read, parsed and verified: later ones map them into memory, and
# come up with little more than half the work. They are for one JVM and one Spark, and any other does as well without them.
name_classes() { CLASSES=$CACHE/classes/$(printf '%s\n' "$JVM" "$SPARK_HOME"/jars/* | cksum | tr ' ' -); }

# Where nothing can be written, or where it has failed before, there are none; nor below a folder with a colon in its
# name, which for the JVM parts two archives.
have_classes() { [[ -f $CLASSES/.tried || ! -w $CACHE || $CACHE == *:* ]]; }

keep_classes() {
    have_classes && return
    local log=$CACHE/classes.log
    say "Keeping Spark's loaded classes (once, half a minute) ..."
    rm -rf -- "${CLASSES%/*}"
    mkdir -p "$CLASSES"
    if (cd "$IMPORTS" && jvm_options "-XX:ArchiveClassesAtExit=$CLASSES/new.jsa" &&
        PYSPARK_PYTHON=$PYTHON PYSPARK_DRIVER_PYTHON=$PYTHON PYSPARK_SUBMIT_ARGS=$(quoted \
            --properties-file "$DEFAULTS" --conf spark.jars.packages= --conf spark.jars.excludes= \
            --jars "$(jar_list "$JARS")")pyspark-shell "$PYTHON" -m "${PACKAGE}jobs.spark.class_archive") >"$log" 2>&1 &&
        [[ -f $CLASSES/new.jsa ]]; then
        mv -- "$CLASSES/new.jsa" "$CLASSES/spark.jsa"
    else
        say "Spark's classes could not be kept, and each start takes a second longer; all that was said is in $log"
    fi
    touch "$CLASSES/.tried"
}

# What the driver's JVM is started with, beside the settings of Spark: where to find how it logs, and more.
jvm_options() { # option...
    # log4j reads a URL: a space or a # in the project's path would end it
    local log4j=file://$ROOT/conf/log4j2.properties
    log4j=${log4j//%/%25}
    log4j=${log4j// /%20}
    log4j=${log4j//#/%23}
    SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -Dlog4j2.configurationFile=$log4j $(quoted "$@")"
    export SPARK_SUBMIT_OPTS
}

jar_list() { # folder that has them there
    local IFS=,
    local -a jars=("$JARS"/*.jar)
    jars=("${jars[@]/#"$JARS"/$1}")
    printf '%s' "${jars[*]}"
}

# What machines of a cluster need beside Spark: the packages (once a lock) and the code with its compiled loops (once a
# version of the code), as archives that Spark unpacks in each worker's folder.
have_packed() { [[ -f $PACKED_ENVIRONMENT && -f $PACKED_CODE ]]; }

pack() {
    have_packed && return
    local log=$CACHE/pack.log
    say "Packing what the cluster's machines need (once a version, a minute) ..."
    if ! (cd "$ROOT" && "$PYTHON" -m jobs.spark.cluster_archives "$PACKED_ENVIRONMENT" "$PACKED_CODE") >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        fail 1 "the environment could not be packed; all that was said is in $log"
    fi
}

# A properties file of the user's adds to ours, where spark-submit would take the last one alone.
add_properties() { # file
    local line name value
    [[ -r $1 ]] || fail 2 "--properties-file $1 cannot be read"
    while IFS= read -r line || [[ -n $line ]]; do
        [[ $line =~ ^[[:space:]]*(#.*)?$ ]] && continue
        [[ $line =~ ^[[:space:]]*([^[:space:]=:]+)([[:space:]]*[=:][[:space:]]*|[[:space:]]+)(.*[^[:space:]])[[:space:]]*$ ]] ||
            fail 2 "--properties-file $1: not NAME VALUE: $line"
        name=${BASH_REMATCH[1]} value=${BASH_REMATCH[3]}
        spark_options+=(--conf "$name=$value")
        note_option --conf "$name=$value"
    done <"$1"
}

# Where the driver and the executors will run decides what they are given.
note_option() { # option, value
    case "$1 $2" in
        "--master "*) master=$2 ;;
        "--conf spark.master="*) master=${2#spark.master=} ;;
        "--deploy-mode "*) deploy_mode=$2 ;;
        "--conf spark.submit.deployMode="*) deploy_mode=${2#spark.submit.deployMode=} ;;
    esac
}

quoted() { # words, as a shell would read them: pyspark splits them so
    local word
    for word in "$@"; do printf "'%s' " "${word//\'/\'\\\'\'}"; done
}

# ROOT holds this file, conf/ and the folders of code. A wheel has the same folders inside its one package, groupledger:
# they are imported from the folder above, its Python is that of the command `groupledger`, and what is made once is the
# user's.
ROOT=$(project_root)
if [[ -f $ROOT/__init__.py ]]; then
    IS_INSTALLED=true
    IMPORTS=$(dirname -- "$ROOT")
    PACKAGE=${ROOT##*/}.
    PYTHON=${GROUPLEDGER_PYTHON:?"is not set: start jobs with the command groupledger"}
    CACHE=${GROUPLEDGER_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/groupledger}
else
    IS_INSTALLED=false
    IMPORTS=$ROOT
    PACKAGE=
    PYTHON=$ROOT/.venv/bin/python
    CACHE=${GROUPLEDGER_CACHE:-$ROOT/.cache}
fi
readonly IS_INSTALLED ROOT IMPORTS PACKAGE PYTHON CACHE
readonly VENV=$ROOT/.venv JARS=$CACHE/jars COMPILED=$CACHE/numba DEFAULTS=$ROOT/conf/spark-defaults.conf
readonly RUN_LOCK=$ROOT/requirements.txt DEV_LOCK=$ROOT/requirements-dev.txt

# A key was pressed and the user's shell asks what may follow: that waits for no set-up, and needs none to say nothing.
if [[ -n ${_GROUPLEDGER_COMPLETE:-} ]]; then
    [[ -x $PYTHON ]] || exit 1
    exec "$PYTHON" "$ROOT/jobs/__main__.py"
fi

[[ ${1:-} != --set-up ]] || check_java
if [[ $IS_INSTALLED == false && "$*" == "--set-up dev" ]]; then
    is_ready dev "$RUN_LOCK" "$DEV_LOCK" || locked make_environment dev "$RUN_LOCK" "$DEV_LOCK"
elif [[ $IS_INSTALLED == false ]]; then
    is_ready run "$RUN_LOCK" || locked make_environment run "$RUN_LOCK"
fi

# What stands before the job's name is for Spark: options with a value in the next word, but for these.
spark_options=()
master=
deploy_mode=client
home=
is_dry_run=false
while [[ ${1:-} == -* && ! ${1:-} =~ ^(-h|--help|--version|--set-up)$ ]]; do
    case $1 in
        --dry-run) is_dry_run=true && shift && continue ;;
        --verbose | -v | --supervise) spark_options+=("$1") && shift && continue ;;
        --*=*)
            option=${1%%=*} value=${1#*=} given=("$1")
            shift
            ;;
        *)
            [[ $# -ge 2 ]] || fail 2 "Spark's option $1 needs a value"
            option=$1 value=$2 given=("$1" "$2")
            shift 2
            ;;
    esac
    case $option in
        --home) home=${value%/} ;;
        --properties-file) add_properties "$value" ;;
        *) spark_options+=("${given[@]}") && note_option "$option" "$value" ;;
    esac
done

export PYTHONPATH=$IMPORTS${PYTHONPATH:+:$PYTHONPATH}
NUMBA_CACHE_DIR=$COMPILED/$(code_sum)
export NUMBA_CACHE_DIR
export PYTHONHASHSEED=0
SPARK_HOME=$(spark_home)
export SPARK_HOME
# a conf folder of another Spark on this machine must not speak here
unset SPARK_CONF_DIR

if [[ ${1:-} == --set-up ]]; then
    # for the Makefile (dev) and for images (run): all that jobs need, or tests too, and no job
    have_jars || locked fetch_jars
    is_compiled || locked compile_loops
    name_classes
    have_classes || locked keep_classes
    exit 0
fi

# Wrong arguments and --help are answered before any JVM starts.
code=0
GROUPLEDGER_PARSE_ONLY=1 "$PYTHON" "$ROOT/jobs/__main__.py" "$@" || code=$?
[[ $code -eq $PARSED ]] || exit "$code"

check_java
have_jars || locked fetch_jars
is_compiled || locked compile_loops
name_classes
have_classes || locked keep_classes
export PYSPARK_PYTHON=$PYTHON PYSPARK_DRIVER_PYTHON=$PYTHON
if [[ -f $CLASSES/spark.jsa ]]; then
    # of one that does not fit after all nothing is said: the JVM reads the classes themselves
    jvm_options "-XX:SharedArchiveFile=$CLASSES/spark.jsa" -Xlog:cds=off -Xlog:cds+dynamic=off
else
    jvm_options
fi

application=$ROOT/jobs/__main__.py
jar_uris=$(jar_list "$JARS")
cluster_options=()
if [[ -n $home ]]; then
    # paths on the cluster's machines; in cluster mode the driver's, too
    PYSPARK_PYTHON=$home/.venv/bin/python
    cluster_options=(
        --conf "spark.executorEnv.PYTHONPATH=$home"
        --conf "spark.executorEnv.NUMBA_CACHE_DIR=$home/.cache/numba/${NUMBA_CACHE_DIR##*/}"
    )
    if [[ $deploy_mode == cluster ]]; then
        application=local://$home/jobs/__main__.py
        jar_uris=$(jar_list "local://$home/.cache/jars")
        PYSPARK_DRIVER_PYTHON=$PYSPARK_PYTHON
        cluster_options+=(--conf "spark.pyspark.python=$PYSPARK_PYTHON")
    fi
elif [[ -n $master && $master != local && $master != local\[* ]]; then
    [[ $IS_INSTALLED == false ]] ||
        fail 2 "a cluster is served from a checkout: install the project from its repository, or put a checkout on the cluster's machines and name it in --home"
    pack_sum=$(lock_sum "$RUN_LOCK" | tr ' ' -)
    PACKED_ENVIRONMENT=$CACHE/packed/environment-$pack_sum.tar.gz
    PACKED_CODE=$CACHE/packed/code-$(packed_code_sum).tar.gz
    have_packed || locked pack
    PYSPARK_PYTHON=./environment/bin/python
    cluster_options=(
        --archives "$PACKED_ENVIRONMENT#environment,$PACKED_CODE#groupledger"
        --conf "spark.executorEnv.PYTHONPATH=./groupledger"
        --conf "spark.executorEnv.NUMBA_CACHE_LOCATOR_CLASSES=InTreeCacheLocator"
    )
    if [[ $deploy_mode == cluster ]]; then
        PYSPARK_DRIVER_PYTHON=$PYSPARK_PYTHON
        cluster_options+=(
            --conf "spark.pyspark.python=$PYSPARK_PYTHON"
            --conf "spark.yarn.appMasterEnv.PYTHONPATH=./groupledger"
            --conf "spark.yarn.appMasterEnv.NUMBA_CACHE_LOCATOR_CLASSES=InTreeCacheLocator"
            --conf "spark.kubernetes.driverEnv.PYTHONPATH=./groupledger"
            --conf "spark.kubernetes.driverEnv.NUMBA_CACHE_LOCATOR_CLASSES=InTreeCacheLocator"
        )
    fi
else
    # Python workers run beside the driver, which may start what they are forked from before Spark is up
    export GROUPLEDGER_WORKERS_AHEAD=true
fi

job_options=()
# queries run for longer than a night's JVM does: they get the compiler that takes its time
[[ ${1:-} != sql ]] || job_options=(--conf "spark.driver.extraJavaOptions=-XX:+UseSerialGC")

submit=(
    --properties-file "$DEFAULTS"
    ${job_options[@]+"${job_options[@]}"}
    --conf spark.jars.packages= --conf spark.jars.excludes=
    --jars "$jar_uris"
    ${cluster_options[@]+"${cluster_options[@]}"}
    ${spark_options[@]+"${spark_options[@]}"}
)
if [[ $is_dry_run == true ]]; then
    # one option a line, as a shell reads it
    printf 'PYSPARK_PYTHON=%q PYSPARK_DRIVER_PYTHON=%q \\\n%q' "$PYSPARK_PYTHON" "$PYSPARK_DRIVER_PYTHON" "$SPARK_HOME/bin/spark-submit"
    for word in "${submit[@]}" "$application" "$@"; do
        [[ $word == --* || $word == "$application" ]] && printf ' \\\n   '
        printf ' %q' "$word"
    done
    printf '\n'
    exit 0
fi
if [[ $deploy_mode == cluster ]]; then
    exec "$SPARK_HOME/bin/spark-submit" "${submit[@]}" "$application" "$@"
fi
PYSPARK_SUBMIT_ARGS=$(quoted "${submit[@]}")pyspark-shell
export PYSPARK_SUBMIT_ARGS
exec "$PYTHON" "$ROOT/jobs/__main__.py" "$@"
