/**
 * The page with a cluster that is made up, to look at and for tests without a cluster:
 *   node dist/test/dashboard/sample-server.js [--port N] [--alone] [--key KEY]
 */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { extname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { ClusterEvent } from '../../shared/wire/cluster-events.js';
import { sampleChat } from './sample-chat.js';
import { sampleCluster, sampleClusterAlone } from './sample-cluster.js';
import { sampleFigures, sampleHeat, sampleHistory, sampleRecall } from './sample-figures.js';
import { samplePasses } from './sample-passes.js';

export interface SampleOptions {
  /** Main without shadow and workers. */
  alone: boolean;
  /** API key that is wanted; null: none. */
  key: string | null;
  /** Asked in the midst of each answer, which goes on when it resolves. */
  halfway: () => Promise<void>;
}

const PAGE = resolve(fileURLToPath(import.meta.url), '..', '..', '..', 'dashboard');
const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'";

/** The events that a new listener gets at once. */
export function sampleEvents(options: SampleOptions): ClusterEvent[] {
  if (options.alone) return [{ type: 'cluster', cluster: sampleClusterAlone() }];
  return [
    { type: 'cluster', cluster: sampleCluster(0) },
    { type: 'figures', samples: sampleHistory(0) },
    { type: 'recall', recall: sampleRecall() },
    { type: 'heat', heat: sampleHeat() },
    ...samplePasses().map((pass): ClusterEvent => ({ type: 'pass', pass })),
  ];
}

function feed(request: IncomingMessage, response: ServerResponse, options: SampleOptions): void {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const tell = (event: ClusterEvent): boolean =>
    response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  sampleEvents(options).forEach(tell);
  let secondsOn = 0;
  const every = setInterval(() => {
    secondsOn += 1;
    if (options.alone) return void tell({ type: 'cluster', cluster: sampleClusterAlone() });
    tell({ type: 'cluster', cluster: sampleCluster(secondsOn) });
    tell({ type: 'figures', samples: [sampleFigures(secondsOn)] });
  }, 1000);
  request.on('close', () => clearInterval(every));
}

function sendFile(response: ServerResponse, name: string): void {
  try {
    const body = readFileSync(join(PAGE, name));
    response.writeHead(200, {
      'content-type': TYPES[extname(name)] ?? 'text/plain',
      'content-security-policy': POLICY,
    });
    response.end(body);
  } catch {
    response.writeHead(404).end();
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of request) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks).toString();
}

async function session(request: IncomingMessage, response: ServerResponse, { key }: SampleOptions): Promise<void> {
  if (request.method === 'DELETE') {
    response.writeHead(204, { 'set-cookie': 'sample=; Max-Age=0; Path=/' }).end();
    return;
  }
  const asked = JSON.parse(await bodyOf(request)) as { key?: string };
  if (asked.key !== key) return void response.writeHead(401).end();
  response.writeHead(204, { 'set-cookie': 'sample=1; HttpOnly; SameSite=Strict; Path=/' }).end();
}

/** Not listening yet. */
export function sampleServer(options: SampleOptions): Server {
  return createServer((request, response) => {
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    if (path === '/cluster/events') {
      const isKnown = options.key === null || request.headers.cookie?.includes('sample=1') === true;
      if (isKnown) feed(request, response, options);
      else response.writeHead(401).end();
    } else if (path === '/cluster/session') void session(request, response, options);
    else if (path === '/v1/chat/completions') void sampleChat(response, options.halfway);
    else if (path === '/') sendFile(response, 'index.html');
    else if (/^\/assets\/[\w.-]+$/.test(path)) sendFile(response, path.slice('/assets/'.length));
    else response.writeHead(404).end();
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      port: { type: 'string', default: '7690' },
      alone: { type: 'boolean', default: false },
      key: { type: 'string' },
    },
  });
  const options = { alone: values.alone, key: values.key ?? null, halfway: () => Promise.resolve() };
  sampleServer(options).listen(Number(values.port), '127.0.0.1', () => {
    process.stdout.write(`http://127.0.0.1:${values.port}/\n`);
  });
}
