import { join } from 'node:path';
import { crc32c } from '../../native/index.js';
import { ExpertFetcher } from '../../packs/fetching/expert-fetcher.js';
import { fetchPlace, PartialPack } from '../../packs/fetching/partial-pack.js';
import { PackPeers } from '../../packs/fetching/pack-peers.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { MANIFEST_FILE } from '../../packs/format/pack-layout.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { openPackSource } from '../../shared/transport/node-clients.js';
import { requireWanted } from '../daemon/run-daemon.js';
import type { NodeEnvironment } from '../environment/node-environment.js';
import type { FoundMain } from './await-main.js';
import { reportFetch } from './fetch-report.js';
import { inDigestDirectory, MainAsker } from './main-asker.js';

/** Pause between two looks at a fetch that is under way. */
const LOOK_MS = 500;

/**
 * Fetches main's whole pack into the user's data directory, and returns its directory; where it is there, that is at once. A later call goes on
 * with what is there.
 * @throws NODE_REFUSED if main comes back with another pack; CANCELLED when the start is abandoned; STORAGE_FULL, STORAGE_FAILED
 */
export async function fetchWholePack(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  abandoned: AbortSignal,
): Promise<string> {
  const asker = new MainAsker(settings, environment, log, abandoned);
  const main = await asker.awaitMain();
  const fetchInto = async (directory: string): Promise<string> => {
    if (await environment.runtime.outside(() => fileExists(join(directory, MANIFEST_FILE)))) return directory;
    const partial = await beginOrResume(directory, main, asker, environment);
    if (partial === null) return directory;
    await finish(partial, main, { asker, settings, environment, abandoned }, log);
    return directory;
  };
  return inDigestDirectory(environment.dataDirectory, main.identity.packDigest, fetchInto, log);
}

/** Null: the directory has something else, which is left to whoever opens it. */
async function beginOrResume(
  directory: string,
  main: FoundMain,
  asker: MainAsker,
  { runtime }: NodeEnvironment,
): Promise<PartialPack | null> {
  const place = await runtime.outside(() => fetchPlace(directory));
  if (place === 'other') return null;
  await asker.awaitAllowed(main);
  const resumed = place === 'new' ? null : await runtime.outside(() => PartialPack.resume(directory, runtime));
  if (resumed !== null) return resumed;
  const manifest = await asker.manifestOf(main);
  return runtime.outside(() => PartialPack.begin(directory, manifest, runtime));
}

interface Fetching {
  asker: MainAsker;
  settings: NodeSettings;
  environment: NodeEnvironment;
  abandoned: AbortSignal;
}

/** Fetches all experts, and then the other files. */
async function finish(
  partial: PartialPack,
  main: FoundMain,
  { asker, settings, environment, abandoned }: Fetching,
  log: Logger,
): Promise<void> {
  const { runtime, transport } = environment;
  const { packDigest, shape, directory, name } = partial.pack;
  log.info('fetching the whole pack', { directory, model: name, digest: packDigest });
  const peers = new PackPeers({
    packDigest,
    layers: shape.expertLayers,
    experts: shape.experts,
    runtime,
    log,
    connect: (address) => openPackSource(transport, address),
    onDescribed: () => fetcher.peersChanged(),
  });
  const fetcher = new ExpertFetcher({ store: partial, peers, crc32c, runtime, log, onFetched: () => undefined });
  const stopReport = reportFetch(fetcher, runtime, log);
  try {
    peers.setAddresses([main.address], []);
    fetcher.need(allExperts(shape));
    for (let known = main; !partial.isWhole;) {
      await runtime.sleep(LOOK_MS, abandoned);
      requireWanted(abandoned);
      if (partial.isWhole || fetcher.progress.problem === '') continue;
      known = await asker.awaitMain(known);
      if (known.identity.packDigest !== packDigest) {
        throw new OdmoeError(
          'NODE_REFUSED',
          `main was restarted with another pack while this one came; start this ${settings.role} again`,
        );
      }
      peers.setAddresses([known.address], []);
    }
  } finally {
    stopReport();
    await fetcher.close();
  }
}

function allExperts({ expertLayers, experts }: ModelShape): ExpertId[] {
  return Array.from({ length: expertLayers * experts }, (_, index) => ({
    layer: Math.floor(index / experts),
    expert: index % experts,
  }));
}
