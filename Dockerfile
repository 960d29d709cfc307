# syntax=docker/dockerfile:1
# docker build --target cpu -t regard .            # CPU builds of torch
# docker build --target cuda -t regard:cuda .      # CUDA builds; run with --gpus all
# docker run --rm -v "$PWD:/work" regard train classification --data mine.csv --out runs/mine
# docker run --rm -v "$PWD:/work" -p 127.0.0.1:8042:8042 regard serve runs --host 0.0.0.0

FROM python:3.11-slim-bookworm AS build
WORKDIR /source
RUN pip install --no-cache-dir build==1.6.1
COPY pyproject.toml README.md LICENSE ./
COPY regard regard
RUN SOURCE_DATE_EPOCH=1767225600 python -m build --wheel --outdir /dist

FROM python:3.11-slim-bookworm AS base
COPY constraints.txt /constraints.txt
COPY --from=build /dist /dist
RUN useradd --create-home --uid 1000 regard && mkdir /work && chown regard /work
ENV PYTHONUNBUFFERED=1
WORKDIR /work
ENTRYPOINT ["regard"]
CMD ["--help"]

FROM base AS cuda
# hadolint ignore=DL3042
RUN --mount=type=cache,target=/root/.cache/pip pip install -c /constraints.txt "$(ls /dist/*.whl)[lab]"
USER 1000

FROM base AS cpu
# hadolint ignore=DL3042
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --extra-index-url https://download.pytorch.org/whl/cpu -c /constraints.txt "$(ls /dist/*.whl)[lab]"
USER 1000
