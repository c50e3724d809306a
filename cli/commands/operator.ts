import { userInfo } from 'node:os';
import type { Command } from 'commander';
import { readJoinTokenFile } from '../../engine/daemon/enter-cluster.js';
import { type JoinedCluster, joinByToken, requireSameCluster } from '../../engine/trust/enrol.js';
import { forgetIdentity, identityDirectory, keyToCertify, storeIdentity } from '../../engine/trust/identity-files.js';
import { authorityWords } from '../../engine/trust/authority-words.js';
import { requireJoinToken } from '../../engine/trust/join-token.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { operatorDirectory } from '../../shared/base/files/state-directory.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { IDENTIFIER_RULE, isIdentifier } from '../../shared/base/text/identifier.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { JOIN_TOKEN_VARIABLE, operatorJoinCommand } from '../../shared/transport/trust/operator-join.js';
import { addOperatorFlags, askForToken, type OperatorFlags } from '../client/ask-operator.js';
import { withInterrupt } from '../client/interrupt.js';
import { mainOfToken } from '../client/main-of-token.js';
import { isOperatorAlready } from '../client/operator-access.js';
import { runtime } from '../client/process-runtime.js';

interface JoinFlags {
  joinFile?: string;
  main?: string;
  interface?: string;
  id?: string;
  json: boolean;
}

const TOKEN_LIFE_MS = 3_600_000;

/** `odmoe operator`: people who direct a cluster from elsewhere than main's host. */
export function registerOperatorCommand(program: Command): void {
  const operator = program
    .command('operator')
    .description("let a person ask and direct a cluster from elsewhere than main's host");
  registerAdd(operator);
  registerJoin(operator);
}

function registerAdd(operator: Command): void {
  const command = operator
    .command('add')
    .description("make a token by which a person's own machine becomes an operator's: for one use, within an hour")
    .argument('<name>', 'the id that the operator gets');
  addOperatorFlags(command)
    .addHelpText(
      'after',
      `
An operator may ask the cluster, and let machines in and remove them. On main's host its user needs no such thing.

Example:
  odmoe operator add anna`,
    )
    .action(async (name: string, flags: OperatorFlags) => {
      const asked = { role: 'operator', name, uses: 1, lifeMs: TOKEN_LIFE_MS };
      const made = await askForToken(flags, asked);
      const lines = [
        `On ${name}'s machine, within the hour (a variable is not in the list of processes, an argument is):`,
        `  ${operatorJoinCommand(name, made.text)}`,
        `It shows these words: ${made.words}`,
      ];
      standardOutput.write(`${flags.json ? printableJson(snakeCaseKeys({ ...made, name })) : lines.join('\n')}\n`);
    });
}

function registerJoin(operator: Command): void {
  operator
    .command('join')
    .description('become an operator of a cluster, on this machine, by a token')
    .argument('[token]', 'what odmoe operator add printed; other users of this host see it in the list of processes')
    .option('--join-file <file>', 'file with the token (default: the variable ODMOE_JOIN_TOKEN)')
    .option('--main <host:port>', "address of the main node (default: the one of the token's cluster that mDNS finds)")
    .option('--interface <ip>', 'with mDNS: the network interface to use, by its IPv4 address')
    .option('--id <name>', "the operator's id, as the token was made for (default: this user's name)")
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
The key is made here and stays here, in $XDG_CONFIG_HOME/odmoe/clusters/CLUSTER (by default ~/.config). From then on odmoe status, prompt,
chat, accept and the like work from this machine.

Examples:
  ${operatorJoinCommand('anna', 'odmoe1-...')}
  odmoe operator join --id anna --join-file token --main 192.168.1.10:7600`,
    )
    .action(join);
}

async function join(given: string | undefined, flags: JoinFlags): Promise<void> {
  const token = await givenToken(given, flags);
  // A token in the arguments is in the list of processes until now.
  process.title = 'odmoe operator join';
  const id = operatorId(flags.id);
  const joined = await withInterrupt((signal) => becomeOperator(token, id, flags, signal));
  const { cluster, words, wasIn } = joined;
  const directory = identityDirectory(operatorDirectory(cluster), id);
  const you = `You are operator ${id} of "${cluster}" on this machine`;
  const line = wasIn
    ? `${you} already, and the token was not used (words: ${words}). The key is here: ${directory}`
    : `${you} (words: ${words}). The key stays here: ${directory}`;
  standardOutput.write(`${flags.json ? printableJson({ cluster, id, words, directory }) : line}\n`);
}

/** Throws USAGE, CONFIG_INVALID. */
async function givenToken(given: string | undefined, { joinFile }: JoinFlags): Promise<string> {
  if (given !== undefined && joinFile !== undefined) {
    throw new OdmoeError('USAGE', 'give the token or --join-file, not both');
  }
  const token =
    joinFile === undefined ? (given ?? process.env[JOIN_TOKEN_VARIABLE]) : await readJoinTokenFile(joinFile);
  if (token !== undefined && token !== '') return token;
  const ways = `by --join-file FILE or the variable ${JOIN_TOKEN_VARIABLE}`;
  throw new OdmoeError('USAGE', `give the token that odmoe operator add printed, ${ways}`);
}

/** A cluster whose operator this user is. `wasIn`: he was it before the token came. */
type OperatedCluster = Pick<JoinedCluster, 'cluster' | 'words'> & { readonly wasIn: boolean };

async function becomeOperator(
  token: string,
  id: string,
  flags: JoinFlags,
  signal: AbortSignal,
): Promise<OperatedCluster> {
  const { address, cluster } = await mainOfToken(token, flags, signal);
  const directory = operatorDirectory(cluster);
  const { authorityDigest } = requireJoinToken(token);
  if (await isOperatorAlready(address, { cluster, id, authorityDigest })) {
    return { cluster, words: authorityWords(authorityDigest), wasIn: true };
  }
  const isNew = !(await fileExists(identityDirectory(directory, id)));
  const machine = { id, role: 'operator', key: await keyToCertify(directory, id) } as const;
  try {
    const joined = await joinByToken(address, token, machine, { runtime, signal });
    requireSameCluster(joined, { address, cluster });
    await storeIdentity(directory, id, joined);
    return { ...joined, wasIn: false };
  } catch (thrown) {
    if (isNew && thrown instanceof OdmoeError && NOT_CERTIFIED.has(thrown.code)) await forgetIdentity(directory, id);
    throw thrown;
  }
}

/** Errors after which main has certified no key. After others it may have, and who tries again needs the same key. */
const NOT_CERTIFIED: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'JOIN_TOKEN_INVALID',
  'TRUST_REFUSED',
  'QUEUE_FULL',
  'REQUEST_INVALID',
]);

function operatorId(given: string | undefined): string {
  const id = given ?? userInfo().username;
  if (isIdentifier(id)) return id;
  throw new OdmoeError(
    'USAGE',
    `${JSON.stringify(id)} is no id of an operator: give one by --id, of ${IDENTIFIER_RULE}`,
  );
}
