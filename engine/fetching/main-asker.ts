import { join } from 'node:path';
import { fetchManifest } from '../../packs/fetching/fetch-manifest.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { LockHeldError } from '../../shared/base/files/process-lock.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { openPackSource, type PackSource } from '../../shared/transport/node-clients.js';
import { requireWanted } from '../daemon/run-daemon.js';
import type { NodeEnvironment } from '../environment/node-environment.js';
import { fetchRoster } from '../trust/key-renewal.js';
import { PackGate } from '../trust/pack-gate.js';
import { awaitMain, type FoundMain } from './await-main.js';

/** Most nodes of one machine that may fetch one pack by default, each into its own directory. */
const DEFAULT_DIRECTORIES_LIMIT = 64;
/** Hexadecimal digits of the digest in a directory's name. */
const DIGEST_DIGITS = 16;
const FETCHED_NAME = new RegExp(`^[0-9a-f]{${DIGEST_DIGITS}}(?:-\\d+)?$`);
/** Pause before main is asked again. */
const ASK_AGAIN_MS = 1000;

/** Whether a directory of packs has this name because a daemon has fetched into it. Pure. */
export function isFetchedPackName(name: string): boolean {
  return FETCHED_NAME.test(name);
}

/**
 * Opens the first default directory for the pack of that digest that has a complete pack or into which no other process fetches.
 * @throws STORAGE_FAILED if all are taken, and what `open` throws
 */
export async function inDigestDirectory<Opened>(
  dataDirectory: string,
  packDigest: string,
  open: (directory: string) => Promise<Opened>,
  log: Logger,
): Promise<Opened> {
  const parent = join(dataDirectory, 'packs');
  const name = packDigest.slice(0, DIGEST_DIGITS);
  for (let number = 1; number <= DEFAULT_DIRECTORIES_LIMIT; number += 1) {
    const directory = join(parent, number === 1 ? name : `${name}-${number}`);
    try {
      return await open(directory);
    } catch (thrown) {
      if (!(thrown instanceof LockHeldError)) throw thrown;
      log.debug('another process fetches into the directory', { directory });
    }
  }
  throw new OdmoeError(
    'STORAGE_FAILED',
    `${parent}: ${DEFAULT_DIRECTORIES_LIMIT} processes fetch the pack already; give this one its own --model`,
  );
}

/** Asks main for what a node fetches before it can start, until main gives it. */
export class MainAsker {
  constructor(
    private readonly settings: NodeSettings,
    private readonly environment: NodeEnvironment,
    private readonly log: Logger,
    private readonly abandoned: AbortSignal,
  ) {}

  /** Waits for main. `known`: as for awaitMain. */
  awaitMain(known: FoundMain | null = null): Promise<FoundMain> {
    return awaitMain(this.settings, this.environment, this.log, this.abandoned, known);
  }

  /** Gets the manifest of main's pack; waits until main sends it. */
  manifestOf(main: FoundMain): Promise<Buffer> {
    const { modelPath } = this.settings;
    return this.ask(main, { name: 'manifest', passing: MANIFEST_FAILURES }, async (source, { identity, address }) => {
      // A pack with another digest has another default directory.
      if (modelPath === null && identity.packDigest !== main.identity.packDigest)
        throw changedMeanwhile(this.settings.role);
      await this.requireAllowed('pack', identity.packDigest, address);
      return fetchManifest(source, identity.packDigest, this.abandoned);
    });
  }

  /** Waits until the cluster's authority has signed main's pack. */
  async awaitAllowed(main: FoundMain): Promise<void> {
    await this.ask(main, { name: 'pack', passing: CONNECTION_FAILURES }, (_source, { identity, address }) =>
      this.requireAllowed('pack', identity.packDigest, address),
    );
  }

  /**
   * Throws TRUST_REFUSED if the authority has not signed what main names. Main opens its stream, which brings rosters, to nodes that have a pack,
   * so a node without one asks for the newest roster itself.
   */
  async requireAllowed(what: 'pack' | 'slices', digest: string, address: string): Promise<void> {
    const { trust, transport } = this.environment;
    const gate = new PackGate(trust, what, digest);
    if (gate.refusal === null || trust === null) return;
    await fetchRoster(trust, transport, address, this.abandoned);
    const { refusal } = gate;
    if (refusal !== null) throw new OdmoeError('TRUST_REFUSED', refusal);
  }

  /** Asks main, and asks again after a failure that may pass; the other failures are thrown. `name`: what main is to give. */
  async ask<Given>(
    main: FoundMain,
    { name, passing }: { name: string; passing: ReadonlySet<ErrorCode> },
    ask: (source: PackSource, main: FoundMain) => Promise<Given>,
  ): Promise<Given> {
    const { runtime, transport } = this.environment;
    for (let current = main; ; current = await this.awaitMain(current)) {
      const source = openPackSource(transport, current.address);
      try {
        return await ask(source, current);
      } catch (thrown) {
        requireWanted(this.abandoned);
        const error = toOdmoeError(thrown);
        if (!passing.has(error.code)) throw error;
        this.log.warn(`main does not give its ${name}`, { main: current.address, error });
      } finally {
        source.close();
      }
      await runtime.sleep(ASK_AGAIN_MS, this.abandoned);
    }
  }
}

/**
 * Main did not answer, has no time now, or has not let its pack be signed yet: it may answer the next call. Nothing on this machine fails with these
 * codes.
 */
export const CONNECTION_FAILURES: ReadonlySet<ErrorCode> = new Set([
  'NO_MAIN',
  'WORKER_LOST',
  'TIMEOUT',
  'CANCELLED',
  'QUEUE_FULL',
  'TRUST_REFUSED',
]);
/**
 * Main refuses if it was started again with another pack. Before it is asked again it names the pack that it has now. Nothing has been written here yet,
 * so a fault of a disk is main's, and may pass.
 */
const MANIFEST_FAILURES: ReadonlySet<ErrorCode> = new Set([
  ...CONNECTION_FAILURES,
  'NODE_REFUSED',
  'STORAGE_FAILED',
  'INTERNAL',
]);

function changedMeanwhile(role: string): OdmoeError {
  return new OdmoeError('NODE_REFUSED', `main was restarted with another pack meanwhile; start this ${role} again`);
}
