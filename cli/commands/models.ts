import type { Command } from 'commander';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { addMainFlags, findMain, type MainFlags } from '../client/find-main.js';
import { type LocalPack, localPacks } from '../models/local-packs.js';
import { packsDirectory } from '../models/pack-places.js';
import { tableLines } from '../output/table.js';
import { STATUS_TIMEOUT_MS } from '../client/ask-status.js';

interface ModelsFlags extends MainFlags {
  packs?: string;
  here: boolean;
  json: boolean;
}

/** The model that the cluster serves. */
interface ServedModel {
  cluster: string;
  name: string;
  digest: string;
}

/** Digits of a digest in the table. */
const DIGEST_DIGITS = 12;

/** `odmoe models`: the packs on this machine, and the model that the cluster serves. */
export function registerModelsCommand(program: Command): void {
  const command = program
    .command('models')
    .description('the packs on this machine, and the one that the cluster serves');
  addMainFlags(command)
    .option('--packs <directory>', 'where packs lie (default: $XDG_DATA_HOME/odmoe/packs, ~/.local/share by default)')
    .option('--here', 'look at this machine only', false)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Packs on the other machines of the cluster, and in other places, are not listed. "odmoe inspect DIRECTORY" shows what is in one, "odmoe rm NAME" deletes one.

Examples:
  odmoe models
  odmoe models --here --packs /data/packs --json`,
    )
    .action(models);
}

async function models(flags: ModelsFlags): Promise<void> {
  const directory = packsDirectory(flags.packs);
  const packs = await localPacks(directory);
  const served = flags.here ? null : await servedModel(flags);
  if (flags.json) {
    standardOutput.write(`${printableJson(snakeCaseKeys({ directory, packs, served }))}\n`);
    return;
  }
  const lines =
    packs.length === 0
      ? [`${directory}: no packs; "odmoe pull OWNER/NAME" gets one`]
      : packLines(directory, packs, served);
  const isHere = packs.some(({ digest }) => digest === served?.digest);
  if (served !== null && !isHere)
    lines.push(`cluster "${served.cluster}" serves ${served.name}, which is not among them`);
  standardOutput.write(`${lines.join('\n')}\n`);
}

/** Null: no cluster answers. */
async function servedModel(flags: MainFlags): Promise<ServedModel | null> {
  try {
    const { address, transport } = await findMain(flags);
    const { cluster, modelName: name, packDigest: digest } = await identifyPeer(transport, address, STATUS_TIMEOUT_MS);
    return { cluster, name, digest };
  } catch (thrown) {
    if (toOdmoeError(thrown).code === 'NO_MAIN' && flags.main === undefined) return null;
    throw thrown;
  }
}

function packLines(directory: string, packs: readonly LocalPack[], served: ServedModel | null): string[] {
  const rows = packs.map(({ entry, name, digest, diskBytes, state, damage }) => [
    name ?? entry,
    formatBytes(diskBytes),
    digest === null ? '' : digest.slice(0, DIGEST_DIGITS),
    served !== null && digest === served.digest ? `${state}, served by "${served.cluster}"` : (damage ?? state),
    entry,
  ]);
  const columns = [
    { title: 'model', align: 'left' },
    { title: 'disk', align: 'right' },
    { title: 'digest', align: 'left' },
    { title: 'state', align: 'left' },
    { title: 'directory', align: 'left' },
  ] as const;
  return [`in ${directory}:`, ...tableLines(columns, rows)];
}
