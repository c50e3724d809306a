import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Manifest } from '../../packs/format/manifest.js';
import { packCheckpoint, type PackOptions } from '../../packs/packing/pack-checkpoint.js';
import { openOnDisk, type OpenFile } from '../../packs/packing/pack-file.js';
import type { PackOutcome } from '../../packs/packing/pack-outcome.js';
import type { PackingTools } from '../../packs/packing/packing-context.js';
import { decodeChunk, encodeChunk, openTensor } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { referenceCrc32c, referenceMergePlanes, referenceSplitPlanes } from './reference-planes.js';
import {
  TINY_CONFIG,
  tinyTensors,
  type TinyTensor,
  withTemporaryDirectory,
  writeTinyCheckpoint,
} from './tiny-checkpoint.js';

/** Packing tools that use the reference code where it exists. */
export const TOOLS: PackingTools = {
  splitPlanes: referenceSplitPlanes,
  joinPlanes: referenceMergePlanes,
  crc32c: referenceCrc32c,
  encodeChunk,
  decodeChunk,
  openFile: openOnDisk,
  openTensor,
  encodesAtOnce: 3,
};

export async function pack(
  source: string,
  output: string,
  change: Partial<PackOptions> & { tools?: Partial<PackingTools>; openFile?: OpenFile } = {},
): Promise<PackOutcome> {
  const { openFile, tools, ...options } = change;
  return packCheckpoint(
    source,
    output,
    {
      codec: { codec: 'raw', level: null },
      shards: 4,
      name: null,
      onDamagedPack: 'refuse',
      ...options,
    },
    { ...TOOLS, ...tools, openFile: openFile ?? openOnDisk },
  );
}

/** A checkpoint and an empty place for its pack. */
export async function withCheckpoint(
  use: (checkpoint: string, output: string) => Promise<void>,
  tensors: readonly TinyTensor[] = tinyTensors(),
  config: Readonly<Record<string, unknown>> = TINY_CONFIG,
): Promise<void> {
  await withTemporaryDirectory(async (directory) => {
    const checkpoint = join(directory, 'tiny');
    await writeTinyCheckpoint(checkpoint, tensors, { config });
    await use(checkpoint, join(directory, 'pack'));
  });
}

/** A manifest as the file has it. */
export function manifestFile(manifest: Manifest): unknown {
  const { model, draft_head: head } = manifest;
  const ofHead = head && { draft_head: { ...head, shape: snakeCaseKeys(head.shape) } };
  return { ...manifest, model: { ...model, shape: snakeCaseKeys(model.shape) }, ...ofHead };
}

export function refusal(code: ErrorCode, message: RegExp): (thrown: unknown) => boolean {
  return (thrown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.equal(thrown.code, code, thrown.message);
    assert.match(thrown.message, message);
    return true;
  };
}

const hash = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

export async function directoryDigests(directory: string): Promise<Record<string, string>> {
  const names = (await readdir(directory)).sort();
  return Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, hash(await readFile(join(directory, name)))] as const)),
  );
}

/** Files that count what is written, and fail with a system error beyond a limit. */
class MeteredFiles {
  writtenBytes = 0;

  constructor(
    private readonly limitBytes = Infinity,
    private readonly code = 'EIO',
  ) {}

  readonly open: OpenFile = async (path) => {
    const file = await openOnDisk(path);
    return {
      read: (...place) => file.read(...place),
      truncate: (size) => file.truncate(size),
      sync: () => file.sync(),
      close: () => file.close(),
      write: async (bytes, offset, length, position) => {
        if (this.writtenBytes + length > this.limitBytes) {
          throw Object.assign(new Error(`${this.code}: injected`), { code: this.code });
        }
        this.writtenBytes += length;
        return file.write(bytes, offset, length, position);
      },
    };
  };
}

/** Files that fail after a share of what the whole pack of the tiny checkpoint writes. */
export async function failingAt(share: number, checkpoint: string, code = 'EIO'): Promise<OpenFile> {
  const meter = new MeteredFiles();
  await withTemporaryDirectory(async (directory) => {
    await pack(checkpoint, join(directory, 'measured'), { openFile: meter.open });
  });
  return new MeteredFiles(Math.floor(meter.writtenBytes * share), code).open;
}
