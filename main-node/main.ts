import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { realEnvironment, type NodeEnvironment } from '../engine/environment/node-environment.js';
import { PackShare } from '../packs/fetching/pack-share.js';
import { exitWithParent } from '../native/index.js';
import type { NodeSettings, RunningNode } from '../shared/config/node-settings.js';
import { advertisedAddress } from '../shared/daemon/advertised-address.js';
import { createNodeIdentity } from '../shared/daemon/node-identity.js';
import { type GiveUp, runDaemon } from '../shared/daemon/run-daemon.js';
import type { Stoppable } from '../shared/discovery/discovery.js';
import type { Logger } from '../shared/log/logger.js';
import { assemble, openCounts, type MainParts } from './assemble-main.js';
import type { Door } from './http/start-door.js';
import { openDoor, planDoor, type PlannedDoor } from './open-door.js';
import type { RpcServer } from '../shared/rpc/transport.js';
import { disposeLoaded, loadMain, type LoadedMain } from './load-main.js';

/** Handle of a running main. */
export interface RunningMain extends RunningNode {
  /** "host:port" where HTTP clients are served; null: nowhere. */
  readonly httpAddress: string | null;
}

/**
 * Starts a main in this process: loads all but the experts, serves users and gathers the cluster. What cannot be opened, loaded or
 * listened on is thrown. `giveUp`: its device is lost. `abandoned`: it is not to start any more.
 */
export async function startMain(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  giveUp: GiveUp = () => undefined,
  abandoned: AbortSignal = new AbortController().signal,
): Promise<RunningMain> {
  const door = await planDoor(settings, environment, log);
  const loaded = await loadMain(settings, environment, log, abandoned);
  try {
    return await serveMain(settings, { ...loaded, environment }, { door, giveUp }, log);
  } catch (thrown) {
    await disposeLoaded(loaded);
    throw thrown;
  }
}

/** The daemon `odmoe main`. */
export async function runMain(): Promise<never> {
  return runDaemon(
    'main',
    (settings, log, giveUp, abandoned) => startMain(settings, realEnvironment(settings), log, giveUp, abandoned),
    exitWithParent,
  );
}

async function serveMain(
  settings: NodeSettings,
  loaded: LoadedMain & { environment: NodeEnvironment },
  { door: planned, giveUp }: { door: PlannedDoor | null; giveUp: GiveUp },
  log: Logger,
): Promise<RunningMain> {
  const { runtime, transport, discovery } = loaded.environment;
  const identity = createNodeIdentity(settings, loaded.source, loaded.device.info(), runtime);
  let door: Door | null = null;
  const parts = assemble(settings, loaded, { identity, giveUp, httpAddress: () => door?.address ?? '' }, log);
  const { membership, inference } = parts;
  const server = await transport.serve({
    host: settings.listenHost,
    port: settings.listenPort,
    network: settings.network,
    log,
    identity: () => identity,
    cluster: {
      join: async (peer, peerHost) => membership.join(peer, peerHost),
      status: async () => parts.status(),
    },
    inference: (request, signal) => inference.generate(request, signal),
    pack: new PackShare(loaded.source, runtime),
  });
  identity.address = advertisedAddress(settings, server.port);
  const announced: Stoppable[] = [];
  let stopping: Promise<void> | null = null;
  const stop = (): Promise<void> => (stopping ??= stopMain(parts, { door, announced, server }, loaded));
  try {
    if (planned !== null) {
      door = await openDoor(planned, parts, loaded, log);
    }
    membership.addConfigured(settings.discovery.peers);
    announced.push(await discovery.watchPeers(settings, (peer) => membership.addDiscovered(peer), log));
    announced.push(await discovery.advertise(settings, identity, log));
  } catch (thrown) {
    await stop();
    throw thrown;
  }
  parts.feed.start();
  log.info('main is ready', { address: server.address, model: loaded.source.name });
  return {
    ...{ address: server.address, httpAddress: door?.address ?? null, stop },
    openCounts: () => openCounts(parts),
    keptSequences: () => parts.engine.room.counts().prefixes,
    metrics: () => parts.metrics.text(),
    events: (wantsPasses) => parts.feed.listen(wantsPasses),
  };
}

/** Answers end first, so that their sequences are freed at the workers and the shadow while the streams stand. */
async function stopMain(
  parts: MainParts,
  { door, announced, server }: { door: Door | null; announced: readonly Stoppable[]; server: RpcServer },
  loaded: LoadedMain,
): Promise<void> {
  const { engine, membership, inference } = parts;
  parts.feed.stop();
  await Promise.all([door?.close(), inference.stop(), server.stop(), ...announced.map((part) => part.stop())]);
  engine.roster.stop();
  await membership.stop();
  engine.passLoop.dispose();
  engine.room.dispose();
  await disposeLoaded(loaded);
}

const entry = process.argv[1];
if (entry !== undefined && realpathSync(entry) === fileURLToPath(import.meta.url)) await runMain();
