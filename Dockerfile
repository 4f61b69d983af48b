# Two images from the lock file. `control` has no torch: operator, gateway. `compute` has all roles.
#   docker build --target control -t ebbtide/control:0.1.0 .
#   podman and buildah take the same file. BASE_IMAGE: any with Python 3.11 as python3.11 or python3,
#   such as one of your own registry, pinned by its digest.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# --- the environment without torch ---------------------------------------------------------------
FROM ${BASE_IMAGE} AS build
ARG UV_VERSION=0.13.9
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/ebbtide \
    UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet uv==${UV_VERSION}
COPY pyproject.toml uv.lock README.md ./
RUN /opt/uv/bin/uv sync --locked --no-default-groups --no-install-project \
      --extra gateway --extra kubernetes
COPY ebbtide ebbtide
COPY services services
COPY operator operator
# What is in the image is listed in /opt/ebbtide/sbom.cdx.json (CycloneDX), with the digest of every wheel.
RUN /opt/uv/bin/uv sync --locked --no-default-groups --no-editable --extra gateway --extra kubernetes && \
    /opt/uv/bin/uv export --quiet --locked --no-default-groups --extra gateway --extra kubernetes \
      --format cyclonedx1.5 --preview-features sbom-export --output-file /opt/ebbtide/sbom.cdx.json

# --- what both images are made of -----------------------------------------------------------------
FROM ${BASE_IMAGE} AS base
# Rewards of type code run programs of answers in cells that bubblewrap makes (docs/reward.md).
RUN command -v bwrap || { apt-get update -q && apt-get install -y -q --no-install-recommends bubblewrap && \
    rm -rf /var/lib/apt/lists/*; }
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ebbtide" \
      org.opencontainers.image.description="Serverless reinforcement learning for language models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Nothing is written but in /tmp, which Kubernetes mounts: the root file system may be read-only.
ENV PATH=/opt/ebbtide/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp LOGNAME=ebbtide HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
USER 10001:10001
WORKDIR /tmp

FROM base AS control
LABEL org.opencontainers.image.ref.name="ebbtide/control"
COPY --from=build /opt/ebbtide /opt/ebbtide
CMD ["python", "-m", "services.gateway"]

# --- the environment with torch, NIXL, data and verifiers -----------------------------------------
# Docker's builder before BuildKit makes every stage that stands before the target: the small image comes first.
FROM build AS build-compute
# One of reasoning-gym's parts has no wheel and is compiled; this stage alone gets a compiler.
RUN { command -v gcc && test -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; } || \
    { apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev python3-dev; }
RUN /opt/uv/bin/uv sync --locked --no-default-groups --no-editable \
      --extra gateway --extra kubernetes --extra reward --extra data --extra compute --extra nixl && \
    /opt/uv/bin/uv export --quiet --locked --no-default-groups \
      --extra gateway --extra kubernetes --extra reward --extra data --extra compute --extra nixl \
      --format cyclonedx1.5 --preview-features sbom-export --output-file /opt/ebbtide/sbom.cdx.json

FROM base AS compute
LABEL org.opencontainers.image.ref.name="ebbtide/compute"
COPY --from=build-compute /opt/ebbtide /opt/ebbtide
# No role is the image's own: `python -m services.planner` and its like say which one it is.
CMD ["python", "-m", "services.planner"]
