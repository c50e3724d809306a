import type { Command } from 'commander';
import { acquireFetchLock } from '../../packs/fetching/fetched-files.js';
import { takeUnusedPack } from '../../packs/format/pack-use.js';
import { ARRIVING_SUFFIX, removeAtOnce, takeArrivingLock } from '../../packs/hub/remote-model.js';
import { acquirePackingLock } from '../../packs/packing/output-directory.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ProcessLock } from '../../shared/base/files/process-lock.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { type LocalPack, localPacks, packsNamed } from '../models/local-packs.js';
import { packsDirectory } from '../models/pack-places.js';

interface RemoveFlags {
  packs?: string;
  force: boolean;
  json: boolean;
}

/** `odmoe rm`: deletes a pack of this machine. */
export function registerRemoveCommand(program: Command): void {
  program
    .command('rm')
    .description('delete a pack of this machine, finished or not')
    .argument('<name>', 'as "odmoe models" lists it: the model, the directory, or the begin of the digest')
    .option('--packs <directory>', 'where packs lie (default: $XDG_DATA_HOME/odmoe/packs, ~/.local/share by default)')
    .option('--force', 'also a pack that a daemon uses', false)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
A pack that is being made or fetched is not deleted, nor, without --force, one that a main, shadow or worker of this machine uses. A
checkpoint in the hub's own cache is nothing that odmoe deletes.

Examples:
  odmoe rm Qwen/Qwen3-30B-A3B
  odmoe rm owner--model--0123456789ab --packs /data/packs`,
    )
    .action(remove);
}

async function remove(name: string, flags: RemoveFlags): Promise<void> {
  const packs = packsDirectory(flags.packs);
  const pack = onlyPack(packsNamed(await localPacks(packs), name), name, packs);
  const leave = flags.force ? null : await takeUnused(pack);
  try {
    await removePack(pack);
  } finally {
    await leave?.();
  }
  const { directory, diskBytes } = pack;
  const text = flags.json
    ? printableJson({ directory, freed_bytes: diskBytes })
    : `${directory}: deleted; ${formatBytes(diskBytes)} are free again`;
  standardOutput.write(`${text}\n`);
}

/** @throws MODEL_NOT_FOUND, USAGE if several packs have the name */
function onlyPack(found: readonly LocalPack[], name: string, packs: string): LocalPack {
  const [only, ...others] = found;
  if (only === undefined) {
    throw new OdmoeError(
      'MODEL_NOT_FOUND',
      `${packs}: no pack is called ${JSON.stringify(name)}; "odmoe models" lists those that are there`,
    );
  }
  if (others.length === 0) return only;
  const list = found.map(({ entry }) => `\n  odmoe rm ${entry}`);
  throw new OdmoeError(
    'USAGE',
    `${found.length} packs are called ${JSON.stringify(name)}; say which one:${list.join('')}`,
  );
}

/** Holds the pack, so that no daemon begins to use it. @throws USAGE if one uses it */
async function takeUnused({ directory }: LocalPack): Promise<() => Promise<void>> {
  const leave = await takeUnusedPack(directory);
  if (leave !== null) return leave;
  throw new OdmoeError(
    'USAGE',
    `${directory}: a main, shadow or worker of this machine uses it; stop that daemon first, or give --force`,
  );
}

/** Deletes a pack while no other process writes to it. */
async function removePack({ directory }: LocalPack): Promise<void> {
  const arriving = directory + ARRIVING_SUFFIX;
  const locks: ProcessLock[] = [];
  try {
    for (const [path, acquire] of [
      [directory, acquirePackingLock],
      [directory, acquireFetchLock],
      [arriving, takeArrivingLock],
    ] as const) {
      if (await fileExists(path)) locks.push(await acquire(path));
    }
    for (const path of [directory, arriving]) {
      if (await fileExists(path)) await removeAtOnce(path);
    }
  } catch (thrown) {
    throw writeFailure(thrown, directory, null);
  } finally {
    for (const lock of locks) await lock.release();
  }
}
