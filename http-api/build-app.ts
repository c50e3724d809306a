import type { IncomingMessage } from 'node:http';
import { fastify, type FastifyError, type FastifyInstance, type FastifyRequest } from 'fastify';
import { OdmoeError, toOdmoeError } from '../shared/base/errors/odmoe-error.js';
import { type Admission, admitRequest } from './access/admit-request.js';
import { logFailure } from './delivery/log-failure.js';
import { sendError } from './delivery/send-error.js';
import type { HttpApiContext, RegisterRoutes } from './http-api-context.js';
import { allowedMethods, type RegisteredRoute } from './requests/allowed-methods.js';
import { BODY_LIMITS } from './requests/body-limits.js';
import { BodyReader } from './requests/read-body.js';
import { keepAccounts } from './requests/request-record.js';
import { requestIdOf } from './requests/request-id.js';
import type { StatusReply } from '../shared/wire/messages.js';

/** Most characters of a parameter in a path. */
const PARAMETER_LENGTH_LIMIT = 512;

export interface AppOptions {
  context: HttpApiContext;
  admission: Admission;
  routes: readonly RegisterRoutes[];
  /** The reason why no client is served at present; null: clients are served. */
  trouble: () => OdmoeError | null;
}

/** Builds the handling of requests, for any kind of connection. */
export function buildApp(options: AppOptions): FastifyInstance {
  const { context, admission, routes, trouble } = options;
  const app = fastify({
    logger: false,
    bodyLimit: BODY_LIMITS.bytes,
    // The HTTP API itself says that it is closing, in the client's dialect.
    return503OnClosing: false,
    requestIdHeader: false,
    genReqId: ({ headers }) => requestIdOf(headers['x-request-id'], () => context.runtime.randomId()),
    routerOptions: {
      ignoreTrailingSlash: true,
      ignoreDuplicateSlashes: true,
      maxParamLength: PARAMETER_LENGTH_LIMIT,
    },
    frameworkErrors: (error, request, reply) => {
      void sendError(reply.header('x-request-id', request.id), errorOfRequest(error));
    },
  });
  takeAnyJson(app);
  keepAccounts(app, context);
  app.decorateRequest('keyRole', 'client');
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
    const { requestIdHeader } = request.routeOptions.config;
    if (requestIdHeader !== undefined) reply.header(requestIdHeader, request.id);
    await admitRequest(admission, request, reply);
  });
  app.addHook('onSend', async (_request, reply) => {
    // A client that asks again must use another connection: this one ends with main.
    if (trouble() !== null) reply.header('connection', 'close');
  });
  app.setErrorHandler<FastifyError>((thrown, request, reply) => {
    const error = errorOfRequest(thrown);
    logFailure(context.log, request, error, reply.raw.destroyed);
    // A client that still sends its body must be able to read the answer; the rest of the body is dropped.
    reply.removeHeader('connection');
    return sendError(reply, error);
  });
  answerUnknownRoutes(app);
  registerHealth(app, context, trouble);
  registerMetrics(app, context);
  for (const register of routes) register(app, context);
  return app;
}

/** Clients often send JSON under another content type or under none (curl -d). */
function takeAnyJson(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  const bodies = new BodyReader();
  app.addContentTypeParser('*', async ({ headers, routeOptions }: FastifyRequest, payload: IncomingMessage) =>
    bodies.read(payload, headers, routeOptions.bodyLimit ?? BODY_LIMITS.bytes),
  );
}

function answerUnknownRoutes(app: FastifyInstance): void {
  const registered: RegisteredRoute[] = [];
  app.addHook('onRoute', ({ method, path }) => {
    for (const name of [method].flat()) registered.push({ method: name, path });
  });
  app.setNotFoundHandler((request, reply) => {
    const path = request.url.split('?', 1)[0] ?? '/';
    const methods = allowedMethods(registered, path);
    if (methods.length === 0) {
      throw new OdmoeError(
        'ROUTE_UNKNOWN',
        `nothing is served at ${path.slice(0, PATH_SHOWN_LIMIT)}; see docs/http.md`,
      );
    }
    reply.header('allow', methods.join(', '));
    throw new OdmoeError('METHOD_UNKNOWN', `${request.method} is not served here, but ${methods.join(', ')} is`);
  });
}

const PATH_SHOWN_LIMIT = 200;

/** Turns an error that Fastify found in a request into our error. */
function errorOfRequest(thrown: Partial<FastifyError> | OdmoeError): OdmoeError {
  if (thrown instanceof OdmoeError) return thrown;
  const { statusCode = 500, message = '' } = thrown;
  if (statusCode >= 400 && statusCode < 500) return new OdmoeError('REQUEST_INVALID', message);
  return toOdmoeError(thrown);
}

/** GET /health, open to all. `trouble`: the reason why main itself serves no client; null: it serves. */
function registerHealth(app: FastifyInstance, context: HttpApiContext, trouble: () => OdmoeError | null): void {
  app.get('/health', { config: { open: true, polled: true } }, (_request, reply) => {
    const error = trouble() ?? clusterTrouble(context.status());
    return error === null ? reply.send({ status: 'ok' }) : sendError(reply, error);
  });
}

/** The reason why the cluster cannot answer any request; null: it can. */
function clusterTrouble({ placement }: StatusReply): OdmoeError | null {
  if (placement !== null && placement.workers.length > 0) return null;
  return new OdmoeError(
    'NO_WORKERS',
    'no worker is connected to main: start one ("odmoe worker"), or see "odmoe status"',
  );
}

/** GET /metrics, for Prometheus. */
const registerMetrics: RegisterRoutes = (app, { metrics }) => {
  app.get('/metrics', { config: { polled: true } }, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.text()),
  );
};
