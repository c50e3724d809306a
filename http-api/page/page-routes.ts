import type { FastifyReply, FastifyRequest } from 'fastify';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { RegisterRoutes } from '../door-context.js';
import type { PageFile } from '../page-files.js';

/** The page asks nobody but main, and runs nothing but its own files. */
const PAGE_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  // Files keep their names when odmoe is updated.
  'cache-control': 'no-cache',
};

const INDEX = 'index.html';

/** The page at / and its files below /assets, open to all: there is nothing of the cluster in them. */
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

/** Browsers name HTML among what they take; other clients take anything. */
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

const GREETING = `This is the HTTP door of an odmoe cluster. Open it in a browser to see the cluster and to chat.

  /v1/chat/completions   OpenAI clients: use the base URL of this page with /v1
  /v1/messages           Anthropic clients
  /api/chat              Ollama clients
  /cluster/events        what happens in the cluster
  /health                whether the cluster can answer
  /metrics               figures for Prometheus

docs/http.md describes them all.
`;
