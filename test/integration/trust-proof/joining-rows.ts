/** Tokens that are of no use, wrong codes, and somebody who stands between while a machine joins. */
import { connect, createServer, type Server } from 'node:tls';
import { joinByToken, pairWithMain } from '../../../engine/trust/enrol.js';
import { ENROLMENT_PATHS } from '../../../engine/trust/enrolment-messages.js';
import { joinTokenText, makeJoinToken } from '../../../engine/trust/join-token.js';
import { authorityDigest } from '../../../shared/transport/trust/certificate.js';
import { METHODS } from '../../../shared/transport/methods.js';
import { ENROLMENT_PROTOCOL, tlsOptions } from '../../../shared/transport/trust/tls-options.js';
import { parseAddress } from '../../../shared/wire/addresses.js';
import { TestCluster } from '../../unit/cluster-authority.js';
import { EnrolmentMain, machineOf } from '../../unit/enrolment-main.js';
import { addressOf, startRefusingMain } from '../../unit/refusing-main.js';
import { RUNTIME } from '../../wall.js';
import { waitUntil } from '../harness/wait-until.js';
import { CLUSTER, type ProofCluster, type Running } from './proof-cluster.js';
import { errorWords, type Row, type Seen, wordsOf } from './row.js';

/** The exit status of JOIN_TOKEN_INVALID. */
const TOKEN_STATUS = 2;

export const JOINING_ROWS: readonly Row[] = [
  {
    done: 'a worker with a token that is used up',
    act: async (cluster) => {
      const token = await cluster.token();
      await joinByToken(cluster.main, token, machineOf('first'), { runtime: RUNTIME });
      return withToken(cluster, token);
    },
    here: /the join token \S+ is used up: .*odmoe token create \[JOIN_TOKEN_INVALID\]/,
    there: { of: 'box', say: /refused a machine that asked to be let in .*is used up/ },
    status: TOKEN_STATUS,
  },
  {
    done: 'a worker with a token that has expired',
    act: async (cluster) => {
      const token = await cluster.token({ lifeMs: 1000 });
      await RUNTIME.sleep(1100);
      return withToken(cluster, token);
    },
    here: /the join token \S+ expired .* ago, by main's clock: .*\[JOIN_TOKEN_INVALID\]/,
    there: { of: 'box', say: /refused a machine that asked to be let in .*expired/ },
    status: TOKEN_STATUS,
  },
  {
    done: 'a worker with a token that was revoked',
    act: async (cluster) => {
      const { id, text } = await cluster.newToken();
      await cluster.asOperator(METHODS.operator.revokeToken, { id });
      return withToken(cluster, text);
    },
    here: /the join token \S+ was revoked on main .*\[JOIN_TOKEN_INVALID\]/,
    there: { of: 'box', say: /refused a machine that asked to be let in .*was revoked/ },
    status: TOKEN_STATUS,
  },
  {
    done: 'a worker with a mistyped token',
    act: async (cluster) => withToken(cluster, mistyped(await cluster.token())),
    here: /token.*mistyped.*\[JOIN_TOKEN_INVALID\]/,
    there: null,
    status: TOKEN_STATUS,
  },
  {
    done: 'a worker with half of a token',
    act: async (cluster) => withToken(cluster, (await cluster.token()).slice(0, 60)),
    here: /token.*(?:cut short|characters|whole).*\[JOIN_TOKEN_INVALID\]/,
    there: null,
    status: TOKEN_STATUS,
  },
  {
    done: 'a machine with a token of another authority',
    act: ({ main }) => {
      const digest = authorityDigest(new TestCluster(CLUSTER).authority.certificate);
      const token = joinTokenText(makeJoinToken(digest, RUNTIME));
      return wordsOf(joinByToken(main, token, machineOf('second'), { runtime: RUNTIME }));
    },
    here: /^TRUST_REFUSED: main at \S+ shows another authority than the token names .*nothing secret was sent$/,
    there: null,
    status: null,
  },
  {
    done: 'a worker whose token is of the role shadow',
    act: async (cluster) => withToken(cluster, await cluster.token({ role: 'shadow' })),
    here: /the join token \S+ is for the role shadow, and not for worker.*\[JOIN_TOKEN_INVALID\]/,
    there: { of: 'box', say: /refused a machine that asked to be let in .*is for the role shadow/ },
    status: TOKEN_STATUS,
  },
  {
    done: 'a worker that waits while three wrong codes are typed at main',
    act: threeWrongCodes,
    here: /3 wrong codes were typed at main.*\[JOIN_TOKEN_INVALID\]\n; main: 2, no machine with the code .*after 3 wrong codes every machine was sent away/s,
    there: { of: 'box', say: /refused a machine that asked to be let in .*3 wrong codes/ },
    status: TOKEN_STATUS,
  },
  {
    done: 'a worker that pairs with one who stands between and shows the true authority',
    act: async (cluster) => {
      const between = await relayTo(cluster.main);
      try {
        return await cluster.runDaemon('gate', 'worker', ['--main', addressOf(between)]).ended;
      } finally {
        between.close();
      }
    },
    here: /is not a main of the authority that it shows: something stands between, do not go on \[TRUST_REFUSED\]/,
    there: null,
    status: 3,
  },
  {
    done: 'a machine that pairs with one who stands between and shows an authority of his own: the codes differ, and nobody is let in',
    act: betweenWithOwnAuthority,
    here: /^other codes; JOIN_TOKEN_INVALID: no machine with the code .*something stands between you: do not go on; in: none$/,
    there: { of: 'box', say: /something stands between you: do not go on/ },
    status: null,
  },
  {
    done: 'a worker that pairs with one who stands between and refuses what it reveals, to see another code of it',
    act: async (cluster) => {
      const refusal = { code: 'PAIRING_UNKNOWN', message: 'this machine waits no more at main' };
      const between = await startRefusingMain(CLUSTER, (path) => (path === ENROLMENT_PATHS.reveal ? refusal : null));
      try {
        const { said, status } = await cluster.runDaemon('gate', 'worker', ['--main', between.address]).ended;
        const reveals = between.asked.filter((path) => path === ENROLMENT_PATHS.reveal).length;
        return { said: `${said}; reveals: ${reveals}`, status };
      } finally {
        between.close();
      }
    },
    here: /^(?!.*Code:).*waits no more at main \[PAIRING_UNKNOWN\]\n?; reveals: 1$/s,
    there: null,
    status: 2,
  },
];

function withToken(cluster: ProofCluster, token: string): Promise<Seen> {
  return cluster.runDaemon('gate', 'worker', ['--main', cluster.main], { ODMOE_JOIN_TOKEN: token }).ended;
}

/** Another character in the middle. */
function mistyped(token: string): string {
  const at = Math.floor(token.length / 2);
  const other = token[at] === 'a' ? 'b' : 'a';
  return `${token.slice(0, at)}${other}${token.slice(at + 1)}`;
}

async function codeOn(worker: Running): Promise<string> {
  const shown = (): string | undefined => /Code: (\d{3} \d{3})/.exec(worker.said())?.[1];
  await waitUntil(
    () => `the worker shows a code; it said ${worker.said()}`,
    () => shown() !== undefined,
  );
  return shown() ?? '';
}

/** Six digits that nobody shows. */
function otherThan(...codes: readonly string[]): string {
  const digits = codes.map((code) => code.replaceAll(' ', ''));
  return ['111111', '222222', '333333'].find((code) => !digits.includes(code)) ?? '';
}

async function threeWrongCodes(cluster: ProofCluster): Promise<Seen> {
  const worker = cluster.runDaemon('gate', 'worker', ['--main', cluster.main]);
  const wrong = otherThan(await codeOn(worker));
  for (let typed = 1; typed <= 2; typed++) {
    await cluster.asOperator(METHODS.operator.accept, { code: wrong }).catch(() => undefined);
  }
  const third = await cluster.command('box', 'accept', wrong, '--cluster', CLUSTER);
  const { status, said } = await worker.ended;
  return { said: `${said}; main: ${third.status}, ${third.said.replace('odmoe: ', '')}`, status };
}

/** One who stands between: TLS of its own on both sides, and every byte passed on. */
async function relayTo(address: string): Promise<Server> {
  const own = tlsOptions(new TestCluster(CLUSTER).member('main'));
  const server = createServer({ ...own, ALPNProtocols: [ENROLMENT_PROTOCOL] }, (victim) => {
    const onwards = connect({
      ...parseAddress(address),
      rejectUnauthorized: false,
      ALPNProtocols: [ENROLMENT_PROTOCOL],
    });
    for (const socket of [victim, onwards]) socket.on('error', () => undefined);
    victim.on('close', () => onwards.destroy());
    victim.pipe(onwards).pipe(victim);
  });
  server.on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

async function betweenWithOwnAuthority(cluster: ProofCluster): Promise<Seen> {
  const between = await new EnrolmentMain(new TestCluster(CLUSTER)).start();
  const leave = new AbortController();
  const codeOf = (address: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const context = { runtime: RUNTIME, signal: leave.signal };
      pairWithMain(address, machineOf('third'), resolve, context).catch(reject);
    });
  try {
    const [victim, attacker] = [await codeOf(between.address), await codeOf(cluster.main)];
    const typed = cluster.asOperator(METHODS.operator.accept, { code: victim });
    const answer = await typed.then(
      () => 'none',
      (thrown: unknown) => errorWords(thrown),
    );
    const { nodes } = await cluster.asOperator(METHODS.operator.listNodes, {});
    const inside = nodes.filter(({ id }) => id === 'third').map(({ id }) => id);
    const codes = victim === attacker ? 'one code' : 'other codes';
    return { said: `${codes}; ${answer}; in: ${inside.join() || 'none'}`, status: null };
  } finally {
    leave.abort();
    await between.stop();
  }
}
