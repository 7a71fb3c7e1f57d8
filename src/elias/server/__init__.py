"""`elias serve`: models over HTTP, and a page to inspect them (docs/how-to/serve.md).

The way of a request: protocol -> middleware -> routes -> validation -> admission -> queue -> batching -> responses.

run             the process: socket, signals, reload, drain
app             the ASGI application put together from the rest
protocol        connections: limits in time and number, a graceful end
middleware      around every request: id, token, security headers, errors, log line, metrics
routes          predict, feedback, models, reload, health, ready, metrics, the page
annif_routes    Annif's REST interface
inspect_routes  labels, clusters, the index, the paths of a text
validation      every check of a request that ends in a 4xx
schemas         bodies of requests and responses
admission       the limits, and every decision to answer 503
queue           which texts of the waiting requests form the next batch
batching        the compute threads
responses       predictions as JSON or as a stream of lines
feedback        the file of accepted and rejected labels
label_search    labels by name
models          the models being served; opening and replacing them
errors          the error format
metrics, logs   for Prometheus; one JSON object per line
page/           the page, and Swagger UI for /docs
"""
