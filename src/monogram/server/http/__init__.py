"""The HTTP layer: ASGI middleware, routes, schemas, the OpenAPI document."""
