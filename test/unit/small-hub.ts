import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { HubClient } from '../../packs/hub/hub-client.js';
import { hubSettings } from '../../packs/hub/hub-settings.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';

/** The small hub's treatment of one request for a large file. */
export type Fault =
  | { kind: 'cut'; afterBytes: number }
  /** 200 and the whole file, whatever range is asked for. */
  | { kind: 'whole' }
  /** The address in the store is good no more. */
  | { kind: 'expired' }
  | { kind: 'status'; status: number; headers?: Record<string, string> }
  | { kind: 'other bytes'; bytes: Uint8Array }
  /** 200 and these bytes, whatever is asked for, as the log-in of a network answers. Its length is not told where `isChunked`. */
  | { kind: 'page'; bytes: Uint8Array; type: string; isChunked?: boolean }
  /** A range that begins elsewhere than asked. */
  | { kind: 'shifted' };

export interface SmallRepository {
  commit: string;
  files: ReadonlyMap<string, Uint8Array>;
  access?: 'gated' | 'private';
  /** Files that lie in the store, with a SHA-256; the others are small, with git's checksum. */
  isLarge?: (path: string) => boolean;
}

export interface SeenRequest {
  server: 'hub' | 'store';
  path: string;
  range: string | null;
  authorization: string | null;
}

export const TOKEN = 'hf_token_that_nobody_may_see';
/** Entries of a page of a listing: few, so that tests see several pages. */
const PAGE_FILES = 3;
const MOVED = 302;

/** A server that speaks the hub's protocol, and a store at another origin, to which it sends for large files. */
export class SmallHub {
  readonly repositories = new Map<string, SmallRepository>();
  /** Faults of the next requests for large files, the first first; then there are none. */
  readonly faults: Fault[] = [];
  /** Answers of the API in place of the right ones, the first first. */
  readonly apiFaults: { status: number; headers?: Record<string, string> }[] = [];
  readonly requests: SeenRequest[] = [];
  /** The store to which the hub sends for large files. */
  storeAddress = '';
  private readonly hub: Server;
  private readonly store: Server;

  private constructor() {
    this.hub = createServer((request, response) => this.answer('hub', request, response));
    this.store = createServer((request, response) => this.answer('store', request, response));
  }

  static async start(): Promise<SmallHub> {
    const started = new SmallHub();
    for (const server of [started.hub, started.store]) {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    }
    started.storeAddress = addressOf(started.store);
    return started;
  }

  get endpoint(): string {
    return addressOf(this.hub);
  }

  async stop(): Promise<void> {
    for (const server of [this.hub, this.store]) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  /** Requests for the bytes of large files. */
  get transfers(): SeenRequest[] {
    return this.requests.filter(({ server }) => server === 'store');
  }

  private answer(server: 'hub' | 'store', request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? '/', 'http://127.0.0.1');
    const path = url.pathname;
    const { range = null, authorization = null } = request.headers;
    this.requests.push({ server, path: path + url.search, range, authorization });
    if (server === 'store') this.sendStored(path, range, response);
    else if (path.startsWith('/api/models/')) this.answerApi(path.slice('/api/models/'.length), url, request, response);
    else this.resolveFile(path.slice(1), request, response);
  }

  /** The repository, or an answer that refuses it. */
  private admitted(id: string, request: IncomingMessage, response: ServerResponse): SmallRepository | null {
    const repository = this.repositories.get(id);
    const isKnown = request.headers.authorization === `Bearer ${TOKEN}`;
    if (repository === undefined || (repository.access === 'private' && !isKnown)) {
      refuse(response, isKnown ? 404 : 401, 'RepoNotFound');
      return null;
    }
    return repository;
  }

  private answerApi(path: string, url: URL, request: IncomingMessage, response: ServerResponse): void {
    const fault = this.apiFaults.shift();
    if (fault !== undefined) {
      response.writeHead(fault.status, fault.headers).end();
      return;
    }
    const [, id = '', verb = '', revision = ''] = /^(.+)\/(revision|tree)\/([^/]+)$/.exec(path) ?? [];
    const repository = this.admitted(id, request, response);
    if (repository === null) return;
    const { commit, files, isLarge = () => true } = repository;
    if (![commit, 'main', 'v1.0%2Fbeta'].includes(revision)) {
      refuse(response, 404, 'RevisionNotFound');
      return;
    }
    if (verb === 'revision') {
      sendJson(response, { id, sha: commit });
      return;
    }
    const first = Number(url.searchParams.get('cursor') ?? 0);
    const names = [...files.keys()];
    const entries = names.slice(first, first + PAGE_FILES).map((name) => {
      const bytes = files.get(name) ?? new Uint8Array();
      const lfs = isLarge(name) ? { lfs: { oid: hex('sha256', bytes), size: bytes.length, pointerSize: 130 } } : {};
      return { type: 'file', path: name, size: bytes.length, oid: gitBlob(bytes), ...lfs };
    });
    const next = first + PAGE_FILES;
    const link = `<${this.endpoint}${url.pathname}?recursive=true&cursor=${next}>; rel="next"`;
    sendJson(response, [{ type: 'directory', path: 'original', oid: commit, size: 0 }, ...entries], {
      ...(next < names.length && { link }),
    });
  }

  private resolveFile(path: string, request: IncomingMessage, response: ServerResponse): void {
    const [, id = '', commit = '', name = ''] = /^(.+?)\/resolve\/([^/]+)\/(.+)$/.exec(path) ?? [];
    const repository = this.admitted(id, request, response);
    if (repository === null) return;
    if (repository.access === 'gated' && request.headers.authorization !== `Bearer ${TOKEN}`) {
      refuse(response, 401, 'GatedRepo');
      return;
    }
    const bytes = repository.files.get(decodeURIComponent(name));
    if (bytes === undefined || commit !== repository.commit) {
      refuse(response, 404, 'EntryNotFound');
      return;
    }
    if (repository.isLarge?.(name) === false) {
      sendRange(bytes, request.headers.range ?? null, response);
      return;
    }
    const signature = `signature=secret${this.requests.length}`;
    // A file in a folder has one name in the store.
    const stored = encodeURIComponent(decodeURIComponent(name));
    response.writeHead(MOVED, { location: `${this.storeAddress}/${id}/${stored}?${signature}` }).end();
  }

  private sendStored(path: string, range: string | null, response: ServerResponse): void {
    const [id, name] = [path.slice(1, path.lastIndexOf('/')), path.slice(path.lastIndexOf('/') + 1)];
    const bytes = this.repositories.get(id)?.files.get(decodeURIComponent(name)) ?? new Uint8Array();
    const fault = this.faults.shift();
    switch (fault?.kind) {
      case undefined:
        sendRange(bytes, range, response);
        return;
      case 'whole':
        sendRange(bytes, null, response);
        return;
      case 'expired':
        response.writeHead(403).end('<Error><Message>Request has expired</Message></Error>');
        return;
      case 'status':
        response.writeHead(fault.status, fault.headers).end();
        return;
      case 'other bytes':
        sendRange(fault.bytes, range, response);
        return;
      case 'page':
        response.writeHead(200, {
          'content-type': fault.type,
          ...(fault.isChunked !== true && { 'content-length': fault.bytes.length }),
        });
        response.end(fault.bytes);
        return;
      case 'shifted':
        sendRange(bytes, 'bytes=1-', response);
        return;
      case 'cut': {
        const from = Number(/^bytes=(\d+)-/.exec(range ?? '')?.[1] ?? 0);
        const status = range === null ? 200 : 206;
        const contentRange = `bytes ${from}-${bytes.length - 1}/${bytes.length}`;
        response.writeHead(status, {
          'content-length': bytes.length - from,
          ...(range !== null && { 'content-range': contentRange }),
        });
        response.write(bytes.subarray(from, from + fault.afterBytes), () => response.socket?.end());
        return;
      }
    }
  }
}

function sendRange(bytes: Uint8Array, range: string | null, response: ServerResponse): void {
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(range ?? '') ?? [];
  if (first === undefined) {
    response.writeHead(200, { 'content-length': bytes.length }).end(bytes);
    return;
  }
  const from = Number(first);
  const end = last === undefined || last === '' ? bytes.length : Math.min(bytes.length, Number(last) + 1);
  if (from >= bytes.length) {
    response.writeHead(416, { 'content-range': `bytes */${bytes.length}` }).end();
    return;
  }
  const contentRange = `bytes ${from}-${end - 1}/${bytes.length}`;
  response
    .writeHead(206, { 'content-length': end - from, 'content-range': contentRange })
    .end(bytes.subarray(from, end));
}

function sendJson(response: ServerResponse, value: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
}

function refuse(response: ServerResponse, status: number, reason: string): void {
  response.writeHead(status, { 'x-error-code': reason, 'x-error-message': `says ${reason}` }).end();
}

function addressOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function hex(kind: 'sha256' | 'sha1', bytes: Uint8Array): string {
  return createHash(kind).update(bytes).digest('hex');
}

/** The name that git gives a file's content. */
export function gitBlob(bytes: Uint8Array): string {
  return hex('sha1', Buffer.concat([Buffer.from(`blob ${bytes.length}\0`), bytes]));
}

/** A clock on which pauses take no time and are written down. */
export class HurriedRuntime extends WallRuntime {
  readonly pausesMs: number[] = [];

  override sleep(delayMs: number): Promise<void> {
    this.pausesMs.push(delayMs);
    return Promise.resolve();
  }

  /** Chance is always the same. */
  override randomInt(): number {
    return 0;
  }
}

/** A client of the small hub. */
export function clientOf(
  hub: { endpoint: string },
  options: { token?: string; runtime?: HurriedRuntime; signal?: AbortSignal; tell?: (words: string) => void } = {},
): HubClient {
  const { token, runtime = new HurriedRuntime(), ...rest } = options;
  return new HubClient({
    settings: hubSettings({ HF_ENDPOINT: hub.endpoint }, '/home/nobody'),
    token: token === undefined ? null : { secret: token, origin: 'HF_TOKEN' },
    runtime,
    ...rest,
  });
}

/** Runs a test with a small hub, which is stopped after it. */
export async function withSmallHub(use: (hub: SmallHub) => Promise<void>): Promise<void> {
  const hub = await SmallHub.start();
  try {
    await use(hub);
  } finally {
    await hub.stop();
  }
}
