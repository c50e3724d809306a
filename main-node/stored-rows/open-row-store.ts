import { createHash } from 'node:crypto';
import { z } from 'zod';
import { removeStore, type OpenStoreFiles, type StoreFiles } from '../../engine/environment/store-files.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { prefixStoreDirectory } from '../../shared/base/files/state-directory.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { cacheRowFloats, isRecurrent, type ModelShape } from '../../shared/model/model-shape.js';
import { decodeHeader, fileBytes, HEAD_BYTES, headerBytes } from './block-format.js';
import { BlockIndex, type FoundBlock } from './block-index.js';
import { BLOCK_NAME, nameOf, STORED_BLOCK_POSITIONS } from './block-names.js';
import type { StoreForm, StoreKey } from './block-work.js';
import { RowStore } from './row-store.js';

const IDENTITY_FILE = 'store.json';
/** Changes with the layout of the files. */
const FORMAT = 1;
/** Bytes from the beginning of a file in which nearly every header lies. */
const START_BYTES = 16 * 1024;
const FLOAT_BYTES = 4;

/** All that rows depend on beside their tokens. */
export interface RowsOrigin {
  readonly packDigest: string;
  /** Empty: experts are computed as they were shipped. */
  readonly slicesDigest: string;
  /** "exact", or a sliced quality. */
  readonly arithmetic: string;
  readonly arithmeticVersion: number;
}

export interface RowStoreWanted {
  /** The state directory of the cluster. */
  readonly stateDirectory: string;
  /** Most bytes of all files; 0: no store is wanted. */
  readonly limitBytes: number;
  /** Rows that the model has are used again at all. */
  readonly reusesPrefixes: boolean;
  readonly shape: Pick<ModelShape, 'layers' | 'hiddenSize'>;
  readonly origin: RowsOrigin;
  /** Rows follow from more than their tokens: a logical cache's decisions. */
  readonly decides: boolean;
}

type StoreRuntime = Pick<Runtime, 'outside' | 'nowMs' | 'wallMs' | 'nextTurn' | 'sleep' | 'randomId'>;

const identitySchema = z.strictObject({ store: z.string(), salt: z.string() });

/** Opens the store for rows of earlier requests. Null: none is wanted, or there cannot be one, and the log says why. Never rejects. */
export async function openRowStore(
  wanted: RowStoreWanted,
  runtime: StoreRuntime,
  openFiles: OpenStoreFiles,
  log: Logger,
): Promise<RowStore | null> {
  const directory = prefixStoreDirectory(wanted.stateDirectory);
  try {
    if (wanted.limitBytes === 0) {
      if (await runtime.outside(() => removeStore(directory)))
        log.info('the prefix store is deleted: none is set any more', { directory });
      return null;
    }
    const obstacle = obstacleOf(wanted);
    if (obstacle !== null) {
      log.warn('there is no prefix store', { reason: obstacle });
      return null;
    }
    const files = await openFiles(directory, runtime);
    if (files !== null) return await openFilled(wanted, files, directory, runtime, log);
    log.warn('there is no prefix store', { reason: `another process uses ${directory}` });
  } catch (thrown) {
    log.warn('there is no prefix store', { error: toOdmoeError(thrown) });
  }
  return null;
}

/** The reason why rows of this model cannot be stored; null: they can. */
export function obstacleOf({
  reusesPrefixes,
  shape,
  origin,
  decides,
}: Omit<RowStoreWanted, 'stateDirectory' | 'limitBytes'>): string | null {
  if (!reusesPrefixes) return 'main.reuse_prefixes is false';
  if (shape.layers.some(({ mixer }) => isRecurrent(mixer)))
    return 'the model has recurrent layers, whose state does not follow from stored rows';
  if (origin.arithmetic === 'fast') return 'fast arithmetic does not give the same bits each time';
  return decides ? 'under a logical cache rows depend on more than their tokens' : null;
}

async function openFilled(
  { limitBytes, shape, origin }: RowStoreWanted,
  files: StoreFiles,
  directory: string,
  runtime: StoreRuntime,
  log: Logger,
): Promise<RowStore> {
  try {
    const layerBytes = shape.layers.map(
      ({ mixer }) => cacheRowFloats(mixer, shape.hiddenSize) * FLOAT_BYTES * STORED_BLOCK_POSITIONS,
    );
    const store = digestOf({ format: FORMAT, ...origin, layerBytes });
    const known = await readIdentity(files);
    const key = known?.store === store ? known : { store, salt: runtime.randomId() + runtime.randomId() };
    const index = new BlockIndex(limitBytes);
    const listed = await files.list();
    const blocks = listed.filter(({ name }) => BLOCK_NAME.test(name));
    if (key === known) {
      await takeOver(index, blocks, files, { key, layerBytes }, log);
    } else {
      // The identity comes last: if this is cut short, the next start deletes the rest.
      await files.remove(blocks.map(({ name }) => name));
      if (known !== null)
        log.info('the prefix store begins anew: another model or arithmetic has filled it', {
          directory,
          files: blocks.length,
        });
      await files.replace(IDENTITY_FILE, JSON.stringify(key));
    }
    const { size, bytes } = index;
    log.info('prefix store', { directory, limitBytes, bytes, blocks: size });
    return new RowStore({ files, index, key, layerBytes, runtime, log });
  } catch (thrown) {
    await files.close();
    throw thrown;
  }
}

function digestOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}

async function readIdentity(files: StoreFiles): Promise<StoreKey | null> {
  const text = await files.read(IDENTITY_FILE);
  if (text === null) return null;
  try {
    return identitySchema.parse(JSON.parse(Buffer.from(text).toString('utf8')));
  } catch {
    return { store: '', salt: '' };
  }
}

/** Reads the headers of all blocks. Those that are damaged or of no use are removed. */
async function takeOver(
  index: BlockIndex,
  listed: readonly { readonly name: string; readonly usedMs: number; readonly bytes: number }[],
  files: StoreFiles,
  form: StoreForm,
  log: Logger,
): Promise<void> {
  const found: FoundBlock[] = [];
  const damaged: string[] = [];
  for (const { name, usedMs, bytes } of listed) {
    const block = blockOf(name, bytes, await readHeader(files, name), form);
    if (block === null) damaged.push(name);
    else found.push({ ...block, usedMs });
  }
  if (damaged.length > 0)
    log.warn('damaged files of the prefix store are dropped', { files: damaged.length, first: damaged[0] });
  await files.remove([...damaged, ...index.takeOver(found)]);
}

/** The beginning of a file, with its whole header. */
async function readHeader(files: StoreFiles, name: string): Promise<Uint8Array | null> {
  const start = await files.readStart(name, START_BYTES);
  const length = start && headerBytes(start);
  if (length === null || start === null || HEAD_BYTES + length <= start.length) return start;
  return await files.readStart(name, HEAD_BYTES + length);
}

/** null: the file is damaged, or not one of this store. */
function blockOf(
  name: string,
  bytes: number,
  start: Uint8Array | null,
  { key, layerBytes }: StoreForm,
): Omit<FoundBlock, 'usedMs'> | null {
  const header = start && decodeHeader(start);
  const length = start && headerBytes(start);
  if (header === null || length === null || header.store !== key.store) return null;
  if (fileBytes(header, length) !== bytes || header.layers.length !== layerBytes.length) return null;
  if (nameOf(header.owner, key.salt, header.parent, header.tokens) !== name) return null;
  return { name, parent: header.parent, bytes, workers: Object.keys(header.workers) };
}
