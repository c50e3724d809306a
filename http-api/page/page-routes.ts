import type { FastifyReply, FastifyRequest } from 'fastify';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { RegisterRoutes } from '../http-api-context.js';
import type { PageFile } from '../page-files.js';

/** The page sends requests to main only, and runs scripts from its own files only. */
const PAGE_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  // The files have the same names after an update of odmoe, so browsers must check them again.
  'cache-control': 'no-cache',
};

const INDEX = 'index.html';

/** The page at / and its files below /assets. They are open to all, because they contain no data of the cluster. */
export const registerPage: RegisterRoutes = (app, { page }) => {
  app.get('/', { config: { open: true } }, (request, reply) => {
    reply.header('vary', 'accept');
    if (!wantsPage(request)) return reply.type('text/plain; charset=utf-8').send(GREETING);
    const index = page.get(INDEX);
    if (index === undefined) throw notBuilt();
    return sendFile(request, reply, index);
  });
  app.get<{ Params: { name: string } }>('/assets/:name', { config: { open: true } }, (request, reply) => {
    const file = page.get(request.params.name);
    if (page.size === 0) throw notBuilt();
    if (file === undefined) throw new OdmoeError('ROUTE_UNKNOWN', 'the page has no such file; load it again');
    return sendFile(request, reply, file);
  });
};

/** Browsers list HTML among the types that they accept; other clients accept any type. */
function wantsPage({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('text/html') === true;
}

function sendFile({ headers }: FastifyRequest, reply: FastifyReply, file: PageFile): FastifyReply {
  reply.headers({ ...PAGE_HEADERS, etag: file.etag });
  if (headers['if-none-match'] === file.etag) return reply.code(304).send();
  return reply.type(file.type).send(file.bytes);
}

function notBuilt(): OdmoeError {
  return new OdmoeError(
    'ROUTE_UNKNOWN',
    'this build of odmoe has no page: run `npm run build` where it is installed, and start main again; `odmoe top` shows the same',
  );
}

const GREETING = `This is the HTTP API of an odmoe cluster. Open it in a browser to see the cluster and to chat.

  /v1/chat/completions   OpenAI clients: use the base URL of this page with /v1
  /v1/messages           Anthropic clients
  /api/chat              Ollama clients
  /cluster/events        what happens in the cluster
  /cluster/machines      which machines are in the cluster, and which wait to join
  /health                whether the cluster can answer
  /metrics               figures for Prometheus

docs/http.md describes them all.
`;
