import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import type { ExpertExtent } from '../../packs/format/extents.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';
import { packOf } from '../integration/harness/test-models.js';
import { RUNTIME, startRpcServer } from '../wall.js';
import { plainIdentity } from './plain-identity.js';

export const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
export const NETWORK = {
  keepaliveIntervalMs: 5000,
  keepaliveTimeoutMs: 20_000,
  executeTimeoutMs: 1000,
  reconnectDelayMs: 50,
};

const IDENTITY: NodeIdentity = plainIdentity({ id: 'peer', role: 'ROLE_MAIN', address: '' });

export function testPack(): Promise<Pack> {
  return packOf('tiny').then(openServedPack);
}

export type PackService = NonNullable<RpcServerOptions['pack']>;

/** Servers of packs, and directories, for the tests of one describe. They end after each test. */
export class FetchSetting {
  parent = '';
  /** Users of the directories and servers. They are closed before these end. */
  readonly users: { close(): Promise<void> }[] = [];
  private readonly servers: RpcServer[] = [];

  /** Call this in a describe: it registers hooks. */
  constructor() {
    beforeEach(() => {
      this.parent = mkdtempSync(join(tmpdir(), 'odmoe-fetch-'));
    });
    afterEach(async () => {
      for (const user of this.users.splice(0)) await user.close();
      for (const server of this.servers.splice(0)) await server.stop();
      rmSync(this.parent, { recursive: true, force: true });
    });
  }

  get directory(): string {
    return join(this.parent, 'worker');
  }

  /** Starts a server of this pack service and returns its address. */
  async serve(pack: PackService, options: Partial<RpcServerOptions> = {}): Promise<string> {
    const fixed = { host: '127.0.0.1', port: 0, network: NETWORK, log: SILENT, node: { identify: () => IDENTITY } };
    const server = await startRpcServer({ ...fixed, ...options, pack });
    this.servers.push(server);
    return server.address;
  }

  /** Serves a copy of the pack in which the chunks of these experts have a wrong byte each. */
  async damagedShare(
    damaged: (extent: ExpertExtent) => boolean,
    extents: readonly ExpertExtent[],
  ): Promise<PackServer> {
    const copy = join(this.parent, 'damaged');
    cpSync(await packOf('tiny'), copy, { recursive: true });
    for (const extent of extents.filter(damaged)) {
      const path = join(copy, extent.file);
      const bytes = readFileSync(path);
      const last = extent.chunks.at(-1)?.offsetBytes ?? 0;
      bytes[last + 5] = (bytes[last + 5] ?? 0) ^ 1;
      writeFileSync(path, bytes);
    }
    return new PackServer(await openServedPack(copy), RUNTIME);
  }
}

/** Resolves when the reader has left. */
function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** A share that does something before each pack piece it gives. */
export function interruptedShare(
  share: PackServer,
  beforePiece: (pieces: number) => Promise<void> | void,
): PackService {
  let pieces = 0;
  return {
    describe: () => share.describe(),
    manifest: (request, signal, peer) => share.manifest(request, signal, peer),
    read: async function* (request, signal, peer) {
      for await (const piece of share.read(request, signal, peer)) {
        await Promise.race([beforePiece(++pieces), aborted(signal)]);
        if (signal.aborted) return;
        yield piece;
      }
    },
  };
}
