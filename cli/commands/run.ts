import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';
import { giveYoungObjectsRoom } from '../../engine/daemon/collection-pauses.js';
import { requireFreePort } from '../../engine/daemon/require-free-port.js';
import { authorityDirectory } from '../../engine/trust/authority-files.js';
import { whileHeld } from '../../engine/trust/main-lock.js';
import { parseRepository, repositoryName } from '../../packs/hub/hub-repository.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { withInterrupt } from '../client/interrupt.js';
import { MOST_WORKERS } from '../client/simulation-flags.js';
import { odmoeCommand } from '../demo/daemon-process.js';
import { DEFAULT_REVISION, findModel, type FoundModel, releaseModel } from '../models/find-model.js';
import { packsDirectory, packsOf } from '../models/pack-places.js';
import { estimateLines, estimateRun, obstacle, type RunEstimate } from '../models/run-estimate.js';
import { firstLine, obtainWithBar, tell } from './pull.js';

interface RunFlags {
  revision: string;
  packs?: string;
  workers?: number;
  profile: string;
  yes: boolean;
  dryRun: boolean;
  json: boolean;
}

/** `odmoe run`: finds a model, says what it would do here, gets it and serves it. */
export function registerRunCommand(program: Command): void {
  program
    .command('run')
    .description('get a model of the Hugging Face hub and serve it, with this box as main')
    .argument('<repository>', 'the model on the hub, as Qwen/Qwen3-30B-A3B')
    .argument('[main-flags...]', 'flags of "odmoe main", as --lan --cluster home')
    .allowUnknownOption()
    .option('--revision <name>', 'a branch, tag or commit', DEFAULT_REVISION)
    .option('--packs <directory>', 'where packs lie (default: $XDG_DATA_HOME/odmoe/packs, ~/.local/share by default)')
    .option(
      '--workers <n>',
      'boxes for the estimate (default: the machines of the cluster)',
      wholeNumberFlag(0, MOST_WORKERS),
    )
    .option(
      '--profile <file>',
      'device profile for the estimate: a file, or the name of one in bench/profiles',
      'rtx3090-testbed',
    )
    .option('--yes', 'do not ask before the download', false)
    .option('--dry-run', 'say what would be done, and end', false)
    .option('--json', 'with --dry-run: print one JSON object', false)
    .addHelpText(
      'after',
      `
Before anything large is downloaded, it says whether this cluster can run the model, about how fast, and how much disk it takes; then it
asks. The model is downloaded and packed file by file ("odmoe pull --help"), and served as by "odmoe main --model PACK". Ctrl-C ends main.
Main runs experts, too, beside the workers that are there or join later (--experts both), unless cluster.yaml names the workers; --experts
says otherwise. --workers and --profile change the estimate alone.

Examples:
  odmoe run Qwen/Qwen3-30B-A3B
  odmoe run Qwen/Qwen3-30B-A3B --yes --lan --cluster home
  odmoe run openai/gpt-oss-20b --dry-run --workers 3`,
    )
    .action(async (name: string, mainFlags: string[], flags: RunFlags) => run(name, mainFlags, flags));
}

async function run(name: string, mainFlags: readonly string[], flags: RunFlags): Promise<void> {
  if (flags.json && !flags.dryRun)
    throw new OdmoeError('USAGE', '--json: main prints no object; give --dry-run with it');
  const repository = parseRepository(requireNameFirst(name, mainFlags));
  const settings = checkedSettings(mainFlags);
  const ownExperts = expertsFlags(mainFlags, settings);
  giveYoungObjectsRoom();
  const packs = packsDirectory(flags.packs);
  // The question always comes if no pack is here. A user who cannot answer it need not wait for the hub.
  if (!flags.yes && !flags.dryRun && (await packsOf(packs, repository)).length === 0) requireTerminal();
  const ready = await withInterrupt(async (signal) => {
    const model = await findModel(repository, { revision: flags.revision, packs, signal, tell });
    try {
      const estimate = await estimateRun(model, settings, {
        profile: flags.profile,
        workers: flags.workers ?? null,
        packs,
        runsExperts: settings.main.experts !== 'workers' || ownExperts.length > 0,
      });
      report(repositoryName(repository), model, estimate, flags);
      if (flags.dryRun) return null;
      const problem = obstacle(repositoryName(repository), estimate);
      if (problem !== null) throw problem;
      await requireStart(settings);
      if (model.kind !== 'packed' && !flags.yes) await ask(signal);
      return { directory: await obtainWithBar(model, signal) };
    } finally {
      await releaseModel(model);
    }
  });
  if (ready === null) return;
  const words = ['main', '--model', ready.directory, ...ownExperts, ...mainFlags];
  process.exitCode = await serve(words);
}

/**
 * Main runs experts, too, because nobody knows before its start which workers are switched on. Not so where the user says where they run, or has set
 * up the cluster's workers in cluster.yaml. Pure.
 */
export function expertsFlags(
  mainFlags: readonly string[],
  { main, discovery }: Pick<NodeSettings, 'main' | 'discovery'>,
): string[] {
  const isSaid = main.experts !== 'workers' || mainFlags.some((flag) => /^--experts(=|$)/.test(flag));
  return isSaid || discovery.peers.some(({ role }) => role === 'worker') ? [] : ['--experts', 'both'];
}

/** The name of the model, behind which the flags of main stand. @throws USAGE if one stands before it */
export function requireNameFirst(name: string, mainFlags: readonly string[]): string {
  if (!name.startsWith('-')) return name;
  const words = [name, ...mainFlags];
  const model = words.find((word) => /^[\w.-]+\/[\w.-]+$/.test(word)) ?? 'OWNER/NAME';
  const flags = words.filter((word) => word !== model).join(' ');
  throw new OdmoeError('USAGE', `flags of main stand behind the name of the model: odmoe run ${model} ${flags}`);
}

/** Main's settings, so that a wrong flag is found before a download. @throws USAGE, CONFIG_INVALID */
function checkedSettings(mainFlags: readonly string[]): NodeSettings {
  const request = parseDaemonFlags('main', ['--model', '.', ...mainFlags]);
  if (request.kind === 'run') return request.settings;
  throw new OdmoeError(
    'USAGE',
    '--help stands behind the name of the model; "odmoe main --help" has the flags of main',
  );
}

/**
 * Looks, before anything large is downloaded, whether main can start here: its ports are free, and no other main holds the cluster's authority.
 * @throws PORT_UNAVAILABLE, STORAGE_FAILED
 */
export async function requireStart({
  listenHost,
  listenPort,
  stateDirectory,
  main: { http },
}: Pick<NodeSettings, 'listenHost' | 'listenPort' | 'stateDirectory' | 'main'>): Promise<void> {
  try {
    await requireFreePort(listenHost, listenPort);
    // Main takes another port if no address was given.
    if (http?.isAddressGiven === true) await requireFreePort(http.host, http.port);
    if (await fileExists(authorityDirectory(stateDirectory))) await whileHeld(stateDirectory, () => Promise.resolve());
  } catch (thrown) {
    const { code, message } = toOdmoeError(thrown);
    const advice = 'main could not start here, so no weights were downloaded; other ports: --port N --http HOST:PORT';
    throw new OdmoeError(code, `${message}; ${advice}; --dry-run estimates beside a main that runs`, { cause: thrown });
  }
}

function report(id: string, model: FoundModel, estimate: RunEstimate, { json, dryRun }: RunFlags): void {
  const problem = obstacle(id, estimate)?.message ?? null;
  if (json) {
    const download = model.kind === 'hub' ? model.remote.weightBytes : 0;
    const object = snakeCaseKeys({ model: id, from: model.kind, downloadBytes: download, problem, ...estimate });
    standardOutput.write(`${printableJson(object)}\n`);
    return;
  }
  const last = dryRun && problem !== null ? [`  it cannot run here: ${problem}`] : [];
  standardOutput.write(`${[firstLine(id, model), ...estimateLines(estimate), ...last].join('\n')}\n`);
}

/** @throws USAGE where nobody can be asked */
function requireTerminal(): void {
  if (process.stdin.isTTY) return;
  throw new OdmoeError(
    'USAGE',
    'nobody can be asked whether to download the model, because standard input is no terminal; give --yes (or --dry-run, which asks nothing)',
  );
}

/** @throws USAGE where nobody can be asked, CANCELLED if the answer is no */
async function ask(signal: AbortSignal): Promise<void> {
  requireTerminal();
  const lines = createInterface({ input: process.stdin });
  try {
    standardError.write('Download and pack it? [y/N] ');
    const answer = await lines.question('', { signal }).catch(() => '');
    if (!/^y(es)?$/i.test(answer.trim()))
      throw new OdmoeError(
        'CANCELLED',
        'nothing was downloaded but descriptions of the model; run the same command again if you want it',
      );
  } finally {
    lines.close();
  }
}

/** Runs a daemon until it ends, and returns its exit status. It ends when this process does. */
async function serve(words: readonly string[]): Promise<number> {
  const [executable, ...rest] = odmoeCommand([...words, '--exit-with-parent']);
  const child = spawn(executable, rest, { stdio: ['pipe', 'inherit', 'inherit'] });
  // A terminal sends Ctrl-C to the daemon, too; a second signal would end it at once.
  const forward = (signal: NodeJS.Signals): void => {
    if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, forward);
  try {
    return await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (status) => resolve(status ?? 1));
    });
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, forward);
  }
}
