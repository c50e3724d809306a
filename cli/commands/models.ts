import type { Command } from 'commander';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { formatBytes } from '../../shared/base/text/units.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { addMainFlags, findMain, type MainFlags } from '../client/find-main.js';
import { clusterPackLines, type ClusterPacks, clusterPacks } from '../models/cluster-packs.js';
import { type LocalPack, localPacks } from '../models/local-packs.js';
import { packsDirectory } from '../models/pack-places.js';
import { tableLines } from '../output/table.js';
import { askStatus } from '../client/ask-status.js';

interface ModelsFlags extends MainFlags {
  packs?: string;
  here: boolean;
  json: boolean;
}

/** Digits of a digest in the table. */
const DIGEST_DIGITS = 12;

/** `odmoe models`: the packs on this machine, and what each daemon of the cluster has of the pack that it serves. */
export function registerModelsCommand(program: Command): void {
  const command = program
    .command('models')
    .description('the packs on this machine, and what each daemon of the cluster has of the one that it serves');
  addMainFlags(command)
    .option('--packs <directory>', 'where packs lie (default: $XDG_DATA_HOME/odmoe/packs, ~/.local/share by default)')
    .option('--here', 'look at this machine only', false)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Of other machines main knows the pack that their daemons have open: whole, or in part. Packs that no daemon has open, and those in other places, are not listed.
"odmoe inspect DIRECTORY" shows what is in one, "odmoe rm NAME" deletes one.

Examples:
  odmoe models
  odmoe models --here --packs /data/packs --json`,
    )
    .action(models);
}

async function models(flags: ModelsFlags): Promise<void> {
  const directory = packsDirectory(flags.packs);
  const packs = await localPacks(directory);
  const { served, problem } = flags.here ? NOT_ASKED : await askCluster(flags);
  if (flags.json) {
    standardOutput.write(`${printableJson(snakeCaseKeys({ directory, packs, served, problem }))}\n`);
    return;
  }
  const lines =
    packs.length === 0
      ? [`${directory}: no packs; "odmoe pull OWNER/NAME" gets one`]
      : packLines(directory, packs, served);
  if (served !== null) lines.push('', ...clusterPackLines(served));
  if (problem !== null) lines.push('', printableLine(`of other machines nothing is known: ${problem}`));
  standardOutput.write(`${lines.join('\n')}\n`);
}

interface Asked {
  served: ClusterPacks | null;
  /** Why nothing is known of the cluster; null: it is, or nobody was asked. */
  problem: string | null;
}

const NOT_ASKED: Asked = { served: null, problem: null };

/** Failures that say that no main answers here, or none that this user may ask: what lies on this machine is listed all the same. */
const UNANSWERED: ReadonlySet<ErrorCode> = new Set(['NO_MAIN', 'TIMEOUT', 'TRUST_REFUSED', 'TLS_MISMATCH']);

/** Throws USAGE, CONFIG_INVALID; and what the asking throws where the user named a main. */
async function askCluster(flags: MainFlags): Promise<Asked> {
  try {
    const served = clusterPacks(await askStatus(await findMain(flags)));
    return { served, problem: served === null ? 'main does not say what it serves' : null };
  } catch (thrown) {
    const error: OdmoeError = toOdmoeError(thrown);
    if (!UNANSWERED.has(error.code) || flags.main !== undefined) throw thrown;
    return { served: null, problem: error.message };
  }
}

function packLines(directory: string, packs: readonly LocalPack[], served: ClusterPacks | null): string[] {
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
