"""/openapi.json: the API as a document, made of the types that read and write it."""

from __future__ import annotations

from typing import Any

import msgspec

from k3d import __version__
from k3d.station.openai import responses
from k3d.station.openai.requests import ChatCompletionRequest, CompletionRequest

_TYPES = (
    ChatCompletionRequest,
    CompletionRequest,
    responses.ChatCompletion,
    responses.Completion,
    responses.ModelList,
    responses.Model,
    responses.ErrorResponse,
)

_MODEL = {
    "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
}


def document(model: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document of a server of one model."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    for name in ("ChatCompletionRequest", "CompletionRequest"):
        schemas[name]["properties"]["model"] = {"enum": [model]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "k3pod", "version": __version__},
        "paths": {
            "/v1/chat/completions": _post("ChatCompletionRequest", "ChatCompletion"),
            "/v1/completions": _post("CompletionRequest", "Completion"),
            "/v1/models": {"get": _operation("listModels", "ModelList")},
            "/v1/models/{model}": {"get": _operation("retrieveModel", "Model") | _MODEL},
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _post(request: str, response: str) -> dict[str, Any]:
    operation = _operation(f"create{response}", response)
    operation["requestBody"] = {"required": True, "content": _json(request)}
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {"post": operation}


def _operation(name: str, response: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "responses": {
            "200": {"description": "The answer.", "content": _json(response)},
            "default": {"description": "An error.", "content": _json("ErrorResponse")},
        },
    }


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
