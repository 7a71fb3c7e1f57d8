"""`elias serve`: models over HTTP, and a page to look into them (docs/serving.md).

limits      what a request may ask for, and what the service keeps waiting
errors      {"error": {"code", "message", "field"}} with the right status
schemas     what goes in and what comes out, for checking and for /docs
models      the models being served; loading, swapping
waiting     who waits, and what is computed next
batching    requests that arrive together are computed together; a bounded queue
answers     Predictions as JSON
paths       why a label was suggested: beam, edges, the winning path
explore     a label, a cluster, the index as a whole
label_search  labels by name
metrics     what Prometheus reads
gate        every request passes it: ids, token, headers, log, metrics
bodies      request bodies: read in bounds and in time
asking      a request held against limits and model
streaming   answers as jsonl
files       the page
service     what the routes share
routes, look  the routes
app         all of it as one application
logs        one JSON object a line
protocol    connections: limits in time and number, a gentle end
run         the process: socket, signals, drain
"""
