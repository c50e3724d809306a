import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { basename, extname, join } from 'node:path';
import { packageRoot } from '../../../shared/config/package-root.js';
import type { ClusterEvent } from '../../../shared/cluster-events/cluster-events.js';

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** What a test plays instead of main. */
export interface PlayedMain {
  events: readonly ClusterEvent[];
  /** Answers a request for a chat, whose body it gets. Absent: 503. */
  chat?: (body: unknown, reply: ServerResponse) => void | Promise<void>;
}

/** Serves the page with events that a test has made up, where what is shown has to be the same at every run. */
export class PageServer {
  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(played: PlayedMain): Promise<PageServer> {
    const server = createServer((request, reply) => void answer(request, reply, played));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    return new PageServer(server, `http://127.0.0.1:${port}`);
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, 'close');
  }
}

async function answer(request: IncomingMessage, reply: ServerResponse, { events, chat }: PlayedMain): Promise<void> {
  const path = request.url ?? '/';
  if (path === '/cluster/events') {
    reply.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const event of events) reply.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  } else if (path === '/v1/chat/completions') {
    let body = '';
    for await (const piece of request) body += String(piece);
    if (chat === undefined) reply.writeHead(503).end();
    else await chat(JSON.parse(body), reply);
  } else {
    const name = path === '/' ? 'index.html' : basename(path);
    const type = TYPES[extname(name)];
    const file = await readFile(join(packageRoot(), 'dist', 'dashboard', name)).catch(() => null);
    if (file === null || type === undefined) reply.writeHead(404).end();
    else reply.writeHead(200, { 'content-type': type }).end(file);
  }
}
