import { homedir } from 'node:os';
import { join } from 'node:path';
import { openCheckpoint, type Checkpoint } from '../../packs/checkpoint/checkpoint.js';
import { type CachedSnapshot, commitKnownHere, findCachedSnapshot } from '../../packs/hub/cached-snapshot.js';
import { HubClient } from '../../packs/hub/hub-client.js';
import { findSnapshot } from '../../packs/hub/hub-files.js';
import { type HubRepository, type HubSnapshot, ggufStem, packName, repositoryName } from '../../packs/hub/hub-repository.js';
import { type HubSettings, hubSettings, readHubToken } from '../../packs/hub/hub-settings.js';
import { inWordsOfModel, namingModel } from '../../packs/hub/naming-model.js';
import { openRemoteGguf, type RemoteGguf } from '../../packs/hub/remote-gguf.js';
import { ARRIVING_SUFFIX, openRemoteModel, type RemoteModel } from '../../packs/hub/remote-model.js';
import { MODEL_NAME_LIMIT } from '../../packs/format/manifest.js';
import { checkTokenizer } from '../../packs/packing/check-tokenizer.js';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { DEFAULT_CODEC, DEFAULT_SHARDS, packCheckpoint } from '../../packs/packing/pack-checkpoint.js';
import { comingNeeds, type ComingNeeds, packComing } from '../../packs/packing/pack-coming.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { runtime } from '../client/process-runtime.js';
import { isWholePack, packsOf } from './pack-places.js';

/** A model that a user names, and where it is now. */
export type FoundModel = PackedModel | CachedModel | HubModel;

/** A whole pack is here. */
export interface PackedModel {
  readonly kind: 'packed';
  readonly directory: string;
}

/** A checkpoint lies in the cache of the hub's own library. */
export interface CachedModel {
  readonly kind: 'cached';
  readonly id: string;
  readonly checkpoint: Checkpoint;
  readonly needs: ComingNeeds;
  /** The directory of the pack that is to be made. */
  readonly directory: string;
}

/** It is on the hub. */
export interface HubModel {
  readonly kind: 'hub';
  readonly id: string;
  readonly remote: RemoteModel | RemoteGguf;
  readonly needs: ComingNeeds;
  readonly directory: string;
}

export interface FindOptions {
  revision: string;
  /** Directory of the packs. */
  packs: string;
  signal: AbortSignal;
  /** Tells the user something, on stderr. */
  tell: (words: string) => void;
}

/** The revision where the user names none. */
export const DEFAULT_REVISION = 'main';

const PACKING = { codec: DEFAULT_CODEC, shards: DEFAULT_SHARDS };

/**
 * Looks for a model: a pack of it, a checkpoint in the hub's own cache, or the hub. Nothing large is downloaded. The caller releases a model of
 * the hub (releaseModel).
 * @throws as openRemoteModel; HUB_UNAVAILABLE, MODEL_NOT_FOUND, TOKENIZER_INVALID
 */
export async function findModel(repository: HubRepository, options: FindOptions): Promise<FoundModel> {
  const settings = hubSettings(process.env, homedir());
  if (settings.isOffline) return findOffline(repository, settings, options);
  const { signal, tell, packs, revision } = options;
  const asking = { settings, token: await readHubToken(settings), runtime, signal, tell };
  const here = await packHere(repository, settings, options);
  // Nobody waits for many tries where a pack is here already.
  const first = new HubClient(here === null ? asking : { ...asking, triesLimit: 1 });
  let snapshot: HubSnapshot;
  try {
    snapshot = await findSnapshot(first, repository, revision);
  } catch (thrown) {
    if (here === null || !(thrown instanceof OdmoeError) || thrown.code !== 'HUB_UNAVAILABLE') throw thrown;
    tell(`${thrown.message.split(';')[0] ?? ''}; takes the pack that is here, ${here}`);
    return { kind: 'packed', directory: here };
  }
  const hub = new HubClient(asking);
  const directory = join(packs, packName(snapshot));
  if (await isWholePack(directory)) return { kind: 'packed', directory };
  const cached = await cachedSnapshot(settings, repository, snapshot.commit);
  if (cached !== null) return cachedModel(repository, cached, packs);
  if (repository.file !== undefined) return ggufModel(hub, snapshot, repository.file, directory);
  return hubModel(hub, snapshot, directory, tell);
}

/** Finds what is here of the revision, as far as that is known without the hub. */
async function findOffline(
  repository: HubRepository,
  settings: HubSettings,
  options: FindOptions,
): Promise<PackedModel | CachedModel> {
  const { packs, revision, tell } = options;
  const id = repositoryName(repository);
  const named = await packOfRevision(repository, settings, options);
  if (named !== null) return { kind: 'packed', directory: named };
  const cached = await cachedSnapshot(settings, repository, revision);
  if (cached !== null) return cachedModel(repository, cached, packs);
  const directory = await packHere(repository, settings, options);
  if (directory !== null) {
    tell(
      `${id}: which commit its branch ${revision} names now is not known without the hub; takes the pack that was made last, ${directory}`,
    );
    return { kind: 'packed', directory };
  }
  const what = revision === DEFAULT_REVISION ? id : `${id} of revision ${JSON.stringify(printableLine(revision))}`;
  throw new OdmoeError(
    'HUB_UNAVAILABLE',
    `${what}: neither a pack in ${packs} nor a whole checkpoint in ${settings.cacheDirectory} is known to be it, and HF_HUB_OFFLINE is set; unset it to ask the hub`,
  );
}

/** A checkpoint in the hub's own cache; null: there is none, or a GGUF file is wanted, which the cache is not asked for. */
async function cachedSnapshot(
  { cacheDirectory }: HubSettings,
  repository: HubRepository,
  revision: string,
): Promise<CachedSnapshot | null> {
  return repository.file === undefined ? findCachedSnapshot(cacheDirectory, repository, revision) : null;
}

/** The whole pack that is the revision as far as is known here; for the default branch else the one that was made last. Null: there is none. */
async function packHere(repository: HubRepository, settings: HubSettings, options: FindOptions): Promise<string | null> {
  const named = await packOfRevision(repository, settings, options);
  if (named !== null || options.revision !== DEFAULT_REVISION) return named;
  const [latest] = await packsOf(options.packs, repository);
  return latest ?? null;
}

/** The whole pack of the commit that the revision is known to name: itself, or what the cache knows of branches and tags. Null: there is none. */
async function packOfRevision(
  repository: HubRepository,
  { cacheDirectory }: HubSettings,
  { packs, revision }: FindOptions,
): Promise<string | null> {
  const commit = await commitKnownHere(cacheDirectory, repository, revision);
  if (commit === null) return null;
  const directory = join(packs, packName({ ...repository, commit }));
  return (await isWholePack(directory)) ? directory : null;
}

async function cachedModel({ id }: HubRepository, { directory: from, commit }: CachedSnapshot, packs: string): Promise<CachedModel> {
  await requireTokenizer({ id, commit }, from);
  const checkpoint = await openCheckpoint(from);
  const { packBytes } = await comingNeeds(checkpoint, PACKING, NATIVE_PACKING_TOOLS);
  // The checkpoint in the cache stays where it is.
  return { kind: 'cached', id, checkpoint, needs: { packBytes, peakBytes: packBytes }, directory: join(packs, packName({ id, commit })) };
}

/**
 * Another program may have put only the weights into the cache. A pack of them would refuse every text, and stay so when the cache is completed.
 * @throws TOKENIZER_INVALID, STORAGE_FAILED
 */
async function requireTokenizer({ id, commit }: HubSnapshot, directory: string): Promise<void> {
  if ((await checkTokenizer(directory)) === null) return;
  throw new OdmoeError(
    'TOKENIZER_INVALID',
    `${directory}: the hub's cache has the weights of ${id} without tokenizer.json: complete it (hf download ${id} --revision ${commit}), then run ` +
      `the same command again; for prompts as token ids alone: odmoe pack ${directory} PACK --name ${id}`,
  );
}

async function hubModel(hub: HubClient, snapshot: HubSnapshot, directory: string, tell: FindOptions['tell']): Promise<HubModel> {
  const remote = await openRemoteModel(hub, snapshot, directory + ARRIVING_SUFFIX);
  try {
    const from = remote.checkpoint.directory;
    const warning = await namingModel(snapshot, from, () => checkTokenizer(from));
    if (warning !== null) tell(inWordsOfModel(warning, snapshot.id, from));
    const needs = await comingNeeds(remote.checkpoint, PACKING, NATIVE_PACKING_TOOLS);
    return { kind: 'hub', id: snapshot.id, remote, needs, directory };
  } catch (thrown) {
    await remote.release();
    throw thrown;
  }
}

/** Its parts are downloaded before they are packed, so the disk holds both for a while. */
async function ggufModel(hub: HubClient, snapshot: HubSnapshot, file: string, directory: string): Promise<HubModel> {
  const remote = await openRemoteGguf(hub, snapshot, file, directory + ARRIVING_SUFFIX);
  try {
    const { packBytes } = await comingNeeds(remote.checkpoint, PACKING, NATIVE_PACKING_TOOLS);
    const needs = { packBytes, peakBytes: remote.weightBytes + packBytes };
    return { kind: 'hub', id: repositoryName(snapshot), remote, needs, directory };
  } catch (thrown) {
    await remote.release();
    throw thrown;
  }
}

/** Lets go of a model of the hub. Call it in any case. */
export async function releaseModel(model: FoundModel): Promise<void> {
  if (model.kind === 'hub') await model.remote.release();
}

/**
 * Makes the pack of a model unless it is there, and returns its directory.
 * @param onProgress called with the bytes of weights that are done: downloaded and packed count half each
 * @throws as packCheckpoint and packComing
 */
export async function obtainPack(
  model: FoundModel,
  signal: AbortSignal,
  onProgress: (doneBytes: number, totalBytes: number) => void,
  onWarning: (warning: string) => void = () => undefined,
): Promise<string> {
  if (model.kind === 'packed') return model.directory;
  const { directory, id: name } = model;
  if (model.kind === 'cached') {
    const options = { ...PACKING, name, onDamagedPack: 'refuse', onProgress, onWarning, signal } as const;
    await packCheckpoint(model.checkpoint.directory, directory, options, NATIVE_PACKING_TOOLS);
    return directory;
  }
  const { remote } = model;
  const progress = new PullProgress(remote.weightBytes, onProgress);
  const options = { ...PACKING, onProgress: progress.packed, onWarning, signal };
  if (remote.form === 'gguf') {
    const path = await remote.bring(model.needs.packBytes, progress.arrived);
    const named = { ...options, name: packedName(name), onDamagedPack: 'refuse' } as const;
    await packCheckpoint(path, directory, named, NATIVE_PACKING_TOOLS);
  } else {
    await packComing(remote.coming(progress.arrived), directory, { ...options, name }, NATIVE_PACKING_TOOLS);
  }
  await remote.remove();
  return directory;
}

/** The name in the pack, without the ending of a GGUF file and the number of its parts; a longer one than packs may have is cut. */
function packedName(name: string): string {
  return ggufStem(name).replace(/-of-\d{5}$/, '').slice(0, MODEL_NAME_LIMIT);
}

/** Adds up what has arrived and what is packed. */
class PullProgress {
  private readonly arrivedBytes = new Map<string, number>();
  private packedShare = 0;

  constructor(
    private readonly totalBytes: number,
    private readonly onProgress: (doneBytes: number, totalBytes: number) => void,
  ) {}

  readonly arrived = (name: string, doneBytes: number): void => {
    this.arrivedBytes.set(name, doneBytes);
    this.tell();
  };

  readonly packed = (doneBytes: number, totalBytes: number): void => {
    this.packedShare = totalBytes === 0 ? 1 : doneBytes / totalBytes;
    this.tell();
  };

  /** The weights that an earlier run packed count as arrived, too. */
  private tell(): void {
    const arrived = [...this.arrivedBytes.values()].reduce((sum, bytes) => sum + bytes, 0);
    const packed = this.packedShare * this.totalBytes;
    this.onProgress((Math.max(arrived, packed) + packed) / 2, this.totalBytes);
  }
}
