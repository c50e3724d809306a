/**
 * The page with a cluster that is made up, to look at and for tests without a cluster:
 *   node dist/test/dashboard/sample-server.js [--port N] [--alone] [--key KEY] [--trust none|plain|without-keys|operator] [--workers N]
 */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { extname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { ClusterData, ClusterEvent } from '../../shared/wire/cluster-events.js';
import { sampleChat, sampleCount } from './sample-chat.js';
import { sampleCluster, sampleClusterAlone, sampleManyWorkers } from './sample-cluster.js';
import { sampleFigures, sampleHeat, sampleHistory, sampleRecall } from './sample-figures.js';
import { bodyOf, SAMPLE_OPERATOR_KEY, SampleMachines, type SampleTrust } from './sample-machines.js';
import { samplePasses } from './sample-passes.js';

export interface SampleOptions {
  /** Main without shadow and workers. */
  alone: boolean;
  /** API key that is wanted; null: none. */
  key: string | null;
  /** Asked in the midst of each answer, which goes on when it resolves. */
  halfway: () => Promise<void>;
  machines: SampleMachines;
  /** Answers a chat's request in place of the invented model. False: the model answers. */
  chat?: (body: string, response: ServerResponse) => boolean;
  /** Changes of the invented cluster. */
  changes?: () => Partial<ClusterData>;
  /** True: nothing is told, and new listeners get no answer, as a stopped process does. */
  isSilent?: () => boolean;
  /** Time between two seconds of the invented cluster: 1000 by default. Each second waits until the page has taken the one before. */
  secondMs?: number;
  /** False: the next second waits, also where the browser has taken the one before into a buffer. */
  mayGoOn?: () => boolean;
  /** Events that each second brings besides. */
  more?: (secondsOn: number) => ClusterEvent[];
}

const PAGE = resolve(fileURLToPath(import.meta.url), '..', '..', '..', 'dashboard');
const MACHINES_PATH = '/cluster/machines';
const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.webmanifest': 'application/manifest+json',
};
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'";

/** The events that a new listener gets at once. */
export function sampleEvents(options: SampleOptions): ClusterEvent[] {
  if (options.alone) return [clusterEvent(0, options)];
  return [
    clusterEvent(0, options),
    { type: 'figures', samples: sampleHistory(0) },
    { type: 'recall', recall: sampleRecall() },
    { type: 'heat', heat: sampleHeat() },
    ...samplePasses().map((pass): ClusterEvent => ({ type: 'pass', pass })),
  ];
}

function clusterEvent(secondsOn: number, { alone, machines, changes }: SampleOptions): ClusterEvent {
  const cluster = alone ? sampleClusterAlone() : sampleCluster(secondsOn);
  const { trust, waitingMachines } = machines;
  return { type: 'cluster', cluster: { ...cluster, hasAuthority: trust !== 'none', waitingMachines, ...changes?.() } };
}

function feed(request: IncomingMessage, response: ServerResponse, options: SampleOptions): void {
  if (options.isSilent?.() === true) return;
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const tell = (event: ClusterEvent): boolean =>
    response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  sampleEvents(options).forEach(tell);
  let secondsOn = 0;
  const every = setInterval(() => {
    if (options.isSilent?.() === true || options.mayGoOn?.() === false || response.writableNeedDrain) return;
    secondsOn += 1;
    tell(clusterEvent(secondsOn, options));
    if (!options.alone) tell({ type: 'figures', samples: [sampleFigures(secondsOn)] });
    options.more?.(secondsOn).forEach(tell);
  }, options.secondMs ?? 1000);
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

async function session(request: IncomingMessage, response: ServerResponse, options: SampleOptions): Promise<void> {
  const { key, machines } = options;
  if (request.method === 'DELETE') {
    response.writeHead(204, { 'set-cookie': 'sample=; Max-Age=0; Path=/' }).end();
    return;
  }
  const asked = JSON.parse(await bodyOf(request)) as { key?: string };
  if (asked.key === SAMPLE_OPERATOR_KEY) machines.trust = 'operator';
  else if (key !== null && asked.key !== key) return void response.writeHead(401).end();
  response.writeHead(204, { 'set-cookie': 'sample=1; HttpOnly; SameSite=Strict; Path=/' }).end();
}

async function answerMachines(
  request: IncomingMessage,
  path: string,
  response: ServerResponse,
  { machines }: SampleOptions,
): Promise<void> {
  machines.answer(request.method ?? '', path.slice(MACHINES_PATH.length), await bodyOf(request), response);
}

async function answerChat(
  request: IncomingMessage,
  response: ServerResponse,
  { chat, halfway }: SampleOptions,
): Promise<void> {
  const body = await bodyOf(request);
  if (chat?.(body, response) !== true) await sampleChat(response, halfway);
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
    else if (path.startsWith(MACHINES_PATH)) void answerMachines(request, path, response, options);
    else if (path === '/v1/chat/completions') void answerChat(request, response, options);
    else if (path === '/tokenize' || path === '/v1/messages/count_tokens') void sampleCount(path, request, response);
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
      trust: { type: 'string', default: 'operator' },
      workers: { type: 'string' },
    },
  });
  const options = {
    alone: values.alone,
    key: values.key ?? null,
    halfway: () => Promise.resolve(),
    machines: new SampleMachines(values.trust as SampleTrust),
    changes: () => (values.workers === undefined ? {} : sampleManyWorkers(Number(values.workers))),
  };
  sampleServer(options).listen(Number(values.port), '127.0.0.1', () => {
    process.stdout.write(`http://127.0.0.1:${values.port}/\n`);
  });
}
