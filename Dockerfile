# A service of one index, which is a volume: docker build -t ragidx . && docker run -v ./ragidx-index:/index:ro \
#   -e RAGIDX_TOKEN=... -p 127.0.0.1:8411:8411 --read-only --tmpfs /tmp ragidx
# The bundled model, endpoints and tables of questions need no torch; for another: --build-arg EXTRAS=cpu,serve,models
FROM python:3.12-slim AS build
ARG EXTRAS=cpu,serve
COPY . /src
RUN python -m venv /opt/ragidx \
    && /opt/ragidx/bin/pip install --no-cache-dir --constraint /src/constraints.txt "/src[${EXTRAS}]"

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 ragidx
COPY --from=build /opt/ragidx /opt/ragidx
ENV PATH=/opt/ragidx/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
VOLUME /index
EXPOSE 8411
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8411/healthz', timeout=4)"]
ENTRYPOINT ["ragidx", "serve", "--host", "0.0.0.0", "--index", "docs=/index"]
