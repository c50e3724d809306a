/** A daemon's way into its cluster, before it starts: by what it has stored, by a token, by a code, or in plaintext on loopback. */
import { basename, dirname, join } from 'node:path';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type FileErrors, fileExists, readBoundedFile } from '../../shared/base/files/read-file.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { standardError } from '../../shared/base/text/text-output.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { EVERY_NETWORK } from '../../shared/settings/resolve-node-settings.js';
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { METHODS } from '../../shared/transport/methods.js';
import { JOIN_TOKEN_VARIABLE } from '../../shared/transport/trust/operator-join.js';
import { hostOf, socketAddress } from '../../shared/wire/addresses.js';
import { authorityDirectory, removeUnfinished } from '../trust/authority-files.js';
import { createCluster, requireNotLost } from '../trust/create-cluster.js';
import {
  type JoinedCluster,
  joinByToken,
  type JoiningMachine,
  pairWithMain,
  requireSameCluster,
} from '../trust/enrol.js';
import { forgetIdentity, keyToCertify, readIdentity, storeIdentity } from '../trust/identity-files.js';
import { requireJoinToken } from '../trust/join-token.js';
import { holdAuthority } from '../trust/main-lock.js';
import { type OpenTrust, openNodeTrust } from '../trust/open-node-trust.js';
import { PAIRING_LIFE_MS, shownCode } from '../trust/pairing.js';
import { closeAll } from './close-all.js';
import { joinedClusters, localAuthorities } from './cluster-directories.js';
import { fittingMains, type FoundMain, givenMain, lookForMains, waitForMain } from './find-cluster.js';
import { isService, joinPatiently } from './join-patiently.js';
import { NO_TOKEN, tokenCredentialPath } from './join-credential.js';
import { requireFreePort } from './require-free-port.js';
import type { GiveUp, StartNode } from './run-daemon.js';
import type { RunningNode } from './running-node.js';

/** A daemon that knows its cluster. */
export interface EnteredCluster extends Entrance {
  /** Gives back what the daemon holds of the cluster's files. The process gives it back when it ends, too. */
  readonly leave: () => Promise<void>;
}

interface Entrance {
  /** With the name of its cluster, and the address to listen on there. */
  readonly settings: NodeSettings;
  /** null: the cluster has no authority. */
  readonly opened: OpenTrust | null;
}

export interface EntryContext {
  readonly runtime: Runtime;
  readonly log: Logger;
  readonly abandoned: AbortSignal;
  /** Tells the user one line. `state`: what the daemon does from now on, for its service manager; left out: the line. */
  readonly say: (text: string, state?: string) => void;
  /** The machine in words, for the operator who lets it in. */
  readonly device: () => string;
  /** The variables of the process. */
  readonly variables: NodeJS.ProcessEnv;
}

type Start = (entered: EnteredCluster, log: Logger, giveUp: GiveUp, abandoned: AbortSignal) => Promise<RunningNode>;

/**
 * The start of a daemon that enters its cluster first. It ends when it is removed from the cluster, and keeps its newest roster
 * before it stops. `describeMachine`: the machine in words, for the operator who lets it in.
 */
export function afterEntering(start: Start, describeMachine: () => string): StartNode {
  return async (settings, log, giveUp, abandoned, report) => {
    const say = (text: string, state = text.trim()): void => {
      standardError.write(`odmoe ${settings.role}: ${text}\n`);
      if (settings.role !== 'main') report.waiting(state);
    };
    // A token in the arguments is in the list of processes until now.
    if (settings.joining.token !== null) process.title = `odmoe ${settings.role}`;
    const variables = process.env;
    const context = { runtime: new WallRuntime(), log, abandoned, say, device: describeMachine, variables };
    const entered = await enterCluster(settings, context);
    // A worker without a pack waits for that of main.
    if (settings.role !== 'main') report.waiting(`is in "${entered.settings.cluster}", and opens its model`);
    try {
      const node = await startInside(entered, () => start(entered, log, giveUp, abandoned), giveUp);
      return { ...node, cluster: entered.settings.cluster };
    } catch (thrown) {
      await entered.leave();
      throw thrown;
    }
  };
}

/** Starts the daemon in its cluster. A removal ends it. */
async function startInside(
  { opened, leave }: EnteredCluster,
  start: () => Promise<RunningNode>,
  giveUp: GiveUp,
): Promise<RunningNode> {
  if (opened === null) return start();
  const { trust } = opened;
  if (trust.ownRemoval !== null) throw removedError(trust.ownRemoval);
  const node = await start();
  const unwatch = trust.watch(() => {
    const { ownRemoval } = trust;
    if (ownRemoval !== null) giveUp(removedError(ownRemoval));
  });
  const stop = (): Promise<void> => closeAll([[() => node.stop()], [() => unwatch(), () => opened.saved()], [leave]]);
  let stopping: Promise<void> | null = null;
  return { ...node, stop: () => (stopping ??= stop()) };
}

/** The roster's words say how the machine comes back. */
function removedError(removal: string): OdmoeError {
  return new OdmoeError('NODE_REMOVED', removal);
}

/**
 * Enters the cluster. A machine that has not joined waits for main, and for the operator who lets it in.
 * @throws CONFIG_INVALID other machines could reach the daemon and nothing would protect it; PORT_UNAVAILABLE, JOIN_TOKEN_INVALID, TRUST_REFUSED, STORAGE_*, CANCELLED
 */
export async function enterCluster(settings: NodeSettings, context: EntryContext): Promise<EnteredCluster> {
  if (settings.role === 'main') return enterAsMain(settings, context);
  return { ...(await enterAsPeer(settings, context)), leave: NOTHING_HELD };
}

async function enterAsMain(settings: NodeSettings, context: EntryContext): Promise<EnteredCluster> {
  const { cluster, stateDirectory, id, joining } = settings;
  const { lan, insecure } = joining;
  const hasAuthority = await fileExists(authorityDirectory(stateDirectory));
  if (insecure && hasAuthority) throw needlesslyInsecure(cluster);
  if (!insecure && !hasAuthority) await requireNotLost(stateDirectory, cluster, id);
  if (!hasAuthority && (insecure || !lan)) return { ...withoutAuthority(settings), leave: NOTHING_HELD };
  const leave = await holdAuthority(stateDirectory);
  try {
    return { ...(await withAuthority(settings, context)), leave };
  } catch (thrown) {
    await leave();
    throw thrown;
  }
}

const NOTHING_HELD = async (): Promise<void> => undefined;

/** Opens main's trust; makes the authority first where the cluster has none. */
async function withAuthority(settings: NodeSettings, { runtime, say, log }: EntryContext): Promise<Entrance> {
  const { cluster, stateDirectory } = settings;
  await removeUnfinished(stateDirectory);
  if (!(await fileExists(authorityDirectory(stateDirectory)))) {
    const { directory, words } = await createCluster(stateDirectory, cluster);
    say(
      `Cluster "${cluster}" has an authority now: ${directory} (back it up; who has it owns the cluster). Words: ${words}`,
    );
  }
  return { settings: listening(settings), opened: await openNodeTrust(settings, runtime.wallMs(), log) };
}

async function enterAsPeer(given: NodeSettings, context: EntryContext): Promise<Entrance> {
  const settings = await inJoinedCluster(given);
  const { stateDirectory, id, joining } = settings;
  if (joining.rejoin) {
    // The files of a daemon that runs stay.
    await requireFreePort(settings.listenHost, settings.listenPort);
    await requireOfRole(settings);
    await forgetIdentity(stateDirectory, id);
  }
  const stored = await openNodeTrust(settings, context.runtime.wallMs(), context.log);
  if (stored !== null && joining.insecure) throw needlesslyInsecure(settings.cluster);
  if (stored !== null) return { settings: listening(settings), opened: stored };
  if (joining.insecure) return insecurely(settings, context);
  const token = await givenToken(settings, context.variables);
  if (await servesOwnHostAlone(settings, token, context)) return withoutAuthority(settings);
  const wanted = {
    cluster: joining.isClusterGiven ? settings.cluster : null,
    authorityDigest: token === null ? null : requireJoinToken(token).authorityDigest,
  };
  const join = async (shownMs: number[]): Promise<FoundMain> => {
    const main = await waitForMain(settings, wanted, (found) => obstacleTo(found, settings), context);
    if (main.authority !== null) await joinCluster(ofCluster(settings, main.cluster), main, token, context, shownMs);
    return main;
  };
  const way = token !== null ? 'token' : isService(context.variables) ? 'serviceCode' : 'code';
  const main = await joinPatiently(way, join, context);
  const named = ofCluster(settings, main.cluster);
  if (main.authority === null) return withoutAuthority(named);
  return { settings: listening(named), opened: await openNodeTrust(named, context.runtime.wallMs(), context.log) };
}

/** Throws CONFIG_INVALID if the id is that of a daemon of another role on this host, such as its main: --rejoin would end that one. */
async function requireOfRole({ stateDirectory, id, role }: NodeSettings): Promise<void> {
  // --rejoin is the remedy for files that cannot be read.
  const stored = await readIdentity(stateDirectory, id).catch(() => null);
  if (stored === null || stored.peer.role === role) return;
  throw new OdmoeError(
    'CONFIG_INVALID',
    `${id} is the ${stored.peer.role} of this host: give this ${role} another --id`,
  );
}

/** A daemon whose cluster nobody named goes on with the one that it has joined. Throws CONFIG_INVALID where there are several. */
async function inJoinedCluster(settings: NodeSettings): Promise<NodeSettings> {
  const { stateDirectory, id, joining } = settings;
  if (joining.isClusterGiven) return settings;
  const joined = await joinedClusters(stateDirectory, id);
  const [only, ...others] = joined;
  if (only === undefined || joined.includes(stateDirectory)) return settings;
  if (others.length === 0) return ofCluster(settings, basename(only));
  const names = joined.map((directory) => `"${basename(directory)}"`).join(', ');
  throw new OdmoeError('CONFIG_INVALID', `${id} has joined several clusters (${names}): say which one, by --cluster`);
}

function ofCluster(settings: NodeSettings, cluster: string): NodeSettings {
  return { ...settings, cluster, stateDirectory: join(dirname(settings.stateDirectory), cluster) };
}

/** In a cluster with an authority a daemon serves every network, unless it was told where to listen. */
function listening(settings: NodeSettings): NodeSettings {
  const { joining, discovery } = settings;
  const stays = joining.isListenHostGiven || discovery.provider === 'static';
  return stays ? settings : { ...settings, listenHost: EVERY_NETWORK };
}

/** Throws CONFIG_INVALID if other machines could reach the daemon, and its user has not said that nothing need protect it. */
function withoutAuthority(settings: NodeSettings): Entrance {
  const { cluster, role, listenHost, joining } = settings;
  const { insecure, isListenHostGiven } = joining;
  if (insecure && !isListenHostGiven) return { settings: { ...settings, listenHost: EVERY_NETWORK }, opened: null };
  if (insecure || isLoopbackHost(listenHost)) return { settings, opened: null };
  const remedy =
    role === 'main'
      ? 'make it by --lan or by odmoe cluster init, and each other machine joins once by a code'
      : "make it on main's host (odmoe cluster init, or odmoe main --lan), and this machine joins once by a code";
  throw new OdmoeError(
    'CONFIG_INVALID',
    `this ${role} is to listen on ${listenHost}, where other machines reach it, and "${cluster}" has no authority that says who may: ${remedy}; --insecure runs it without any protection`,
  );
}

function needlesslyInsecure(cluster: string): OdmoeError {
  return new OdmoeError(
    'CONFIG_INVALID',
    `"${cluster}" has an authority, and all of its connections are TLS: leave out --insecure`,
  );
}

/** Throws TLS_MISMATCH if main speaks TLS. */
async function insecurely(settings: NodeSettings, context: EntryContext): Promise<Entrance> {
  const { mainAddress, role } = settings;
  if (mainAddress === null) await tellOfTls(settings, context);
  const found = mainAddress === null ? null : await givenMain(mainAddress, context);
  if (found === null || found.authority === null) return withoutAuthority(settings);
  throw new OdmoeError(
    'TLS_MISMATCH',
    `main at ${found.address} speaks TLS and this ${role} was told --insecure: leave that out`,
  );
}

/** Main may come later, and anybody may say by mDNS that he is main: so a daemon without protection says that only mains with TLS answer, and goes on. */
async function tellOfTls(settings: NodeSettings, context: EntryContext): Promise<void> {
  const { cluster, role } = settings;
  const wanted = { cluster, authorityDigest: null };
  const mains = fittingMains((await lookForMains(settings, wanted, context)).mains, wanted);
  if (mains.length === 0 || mains.some(({ authority }) => authority === null)) return;
  const list = mains.map(({ address }) => address).sort();
  context.say(
    `main of "${cluster}" at ${list.join(', ')} speaks TLS and uses no ${role} that was told --insecure: leave that out`,
  );
}

/**
 * A daemon on loopback whose main can only be on this host, where no cluster has an authority, needs no ceremony. One that has a token waits for the
 * main that made it: a main that does not answer yet may be of another user.
 */
async function servesOwnHostAlone(
  settings: NodeSettings,
  token: string | null,
  context: EntryContext,
): Promise<boolean> {
  const { joining, listenHost, mainAddress, discovery, stateDirectory, cluster } = settings;
  const { isListenHostGiven, isClusterGiven } = joining;
  if (token !== null || !isLoopbackHost(listenHost)) return false;
  const isMainHere =
    mainAddress === null ? discovery.provider === 'static' || isListenHostGiven : isLoopbackHost(hostOf(mainAddress));
  if (!isMainHere) return false;
  if ((await localAuthorities(stateDirectory, isClusterGiven ? cluster : null)).length > 0) return false;
  const found = mainAddress === null ? null : await givenMain(mainAddress, context);
  return found === null || found.authority === null;
}

/** The reason why a daemon does not join a main that it has found; null: it may. Throws CONFIG_INVALID for one whose address it was given. */
export function obstacleTo({ address, cluster, authority }: FoundMain, settings: NodeSettings): string | null {
  const { listenHost, mainAddress } = settings;
  if (authority !== null || (isLoopbackHost(hostOf(address)) && isLoopbackHost(listenHost))) return null;
  const what = `main of "${cluster}" at ${address} has no authority that says who may join`;
  const text = `${what}: on its host say odmoe cluster init and start it again, or start all of its daemons with --insecure`;
  // Anybody may say by mDNS that he is main.
  if (mainAddress === null) return text;
  throw new OdmoeError('CONFIG_INVALID', text);
}

const TOKEN_FILE_LIMIT_BYTES = 4096;
const TOKEN_FILE_ERRORS: FileErrors = {
  missing: 'CONFIG_INVALID',
  invalid: 'CONFIG_INVALID',
  remedy: 'give a file with a token that odmoe token create printed',
};

/** Throws CONFIG_INVALID. */
export async function readJoinTokenFile(path: string): Promise<string> {
  return (await readBoundedFile(path, TOKEN_FILE_LIMIT_BYTES, TOKEN_FILE_ERRORS)).toString().trim();
}

/** The token by which the daemon is to join; null: it has none. */
async function givenToken({ joining }: NodeSettings, variables: NodeJS.ProcessEnv): Promise<string | null> {
  const { token, tokenPath } = joining;
  if (token !== null) return token;
  if (tokenPath !== null) return readJoinTokenFile(tokenPath);
  const configured = variables[JOIN_TOKEN_VARIABLE]?.trim() ?? '';
  if (configured !== '') return configured;
  const credential = tokenCredentialPath(variables);
  if (credential === null || !(await fileExists(credential))) return null;
  const text = await readJoinTokenFile(credential);
  return text === NO_TOKEN ? null : text;
}

/** Joins, and stores what the daemon has got. */
async function joinCluster(
  settings: NodeSettings,
  main: FoundMain,
  token: string | null,
  context: EntryContext,
  shownMs: number[],
): Promise<void> {
  const { stateDirectory, id, cluster, role } = settings;
  assertInvariant(role !== 'main', 'Main makes its own certificate.');
  const machine = { id, role, key: await keyToCertify(stateDirectory, id) };
  const joined = await letIn(main, machine, token, context, shownMs);
  requireSameCluster(joined, main);
  await storeIdentity(stateDirectory, id, joined);
  context.say(`joined "${cluster}" as ${id} (words: ${joined.words}). The key stays here; no code is needed again.`);
}

async function letIn(
  { address, cluster, socketPath }: FoundMain,
  machine: JoiningMachine,
  token: string | null,
  context: EntryContext,
  shownMs: number[],
): Promise<JoinedCluster> {
  const { runtime, abandoned, say, device } = context;
  const enrolment = { runtime, signal: abandoned };
  const text = token ?? (socketPath === null ? null : await tokenOfOwnHost(socketPath, machine, context));
  if (text !== null) return joinByToken(address, text, machine, enrolment);
  say(`Found main of "${cluster}" at ${address}. This machine is not in the cluster yet.`);
  const showCode = (code: string, words: string, isAnother: boolean): void => {
    if (isAnother)
      say(
        'main was started again, or the connection was lost, so that main knows this code no more; here is a new one',
      );
    const minutes = PAIRING_LIFE_MS / 60_000;
    say(
      `  Code: ${shownCode(code)}      On main: odmoe accept ${code} (or type it on its page). Waiting, ${minutes} min ...`,
    );
    // Who asks the service manager sees one line: the code must be in it.
    const state = `waits for odmoe accept ${code} on main, which shows these words, too: ${words}`;
    say(`  Main shows these words, too: ${words}`, state);
  };
  try {
    return await pairWithMain(address, { ...machine, device: device() }, showCode, enrolment, shownMs);
  } catch (thrown) {
    if (abandoned.aborted) say('stopped before this machine was let in; its code is good no more');
    throw thrown;
  }
}

/** A user who can open the operator's socket is the operator, so a daemon of that user needs no code. */
async function tokenOfOwnHost(path: string, { id, role }: JoiningMachine, { runtime }: EntryContext): Promise<string> {
  const transport = new GrpcTransport(runtime);
  const wanted = { role, name: id, uses: 1, lifeMs: OWN_TOKEN_LIFE_MS };
  const { text } = await transport.call(socketAddress(path), METHODS.operator.createToken, wanted, {
    timeoutMs: OWN_TOKEN_LIFE_MS,
  });
  return text;
}

const OWN_TOKEN_LIFE_MS = 60_000;
