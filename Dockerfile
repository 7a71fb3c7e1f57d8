# A service for one model, on the CPU. Not built by the tests: see docs/how-to/serve.md.
#
#   docker build -t elias .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/models/mine:/model:ro" elias
FROM python:3.11-slim

# torch from its CPU index: the usual wheel brings CUDA, gigabytes that nothing here would use.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /app
COPY constraints.txt ./
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[serve]'

# Compiled kernels are kept here; mount a volume to keep them between containers.
RUN useradd --create-home elias && mkdir -p /var/cache/elias && chown elias /var/cache/elias
ENV NUMBA_CACHE_DIR=/var/cache/elias PYTHONUNBUFFERED=1
USER elias
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready')"]
ENTRYPOINT ["elias", "serve", "--host", "0.0.0.0"]
CMD ["/model"]
