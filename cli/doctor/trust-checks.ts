/** Checks that say whether this machine and main trust each other, and why not. Everything here is pure. */
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import { readPeerCertificate, shortAuthorityDigest } from '../../shared/transport/trust/certificate.js';
import { operatorJoinCommand } from '../../shared/transport/trust/operator-join.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { hostOf } from '../../shared/wire/addresses.js';
import { type Check, fail, ok, warn } from './check.js';
import type { OwnIdentity } from './own-identities.js';
import type { Admission, Clocks, ShownByTls } from './probe-tls.js';

const NAME = 'trust';
/** An earlier year means that the clock is wrong. */
const EARLIEST_YEAR = 2025;
const CLOCK_LIMIT_MS = 24 * 3600 * 1000;

/** The result of the probe of a main. */
export interface MainProbe {
  readonly address: string;
  readonly cluster: string;
  /** True: a flag or the configuration names this main or its cluster; false: it was only heard. */
  readonly isNamed: boolean;
  /** Null: it speaks plaintext. */
  readonly shown: ShownByTls | null;
  /** By the ids of the daemons of this machine that have joined by main's authority. */
  readonly admissions: ReadonlyMap<string, Admission>;
}

/** `own`: the daemons of this machine, and this user as an operator, that have begun to join main's cluster, or joined it. */
export function trustChecks(main: MainProbe, own: readonly OwnIdentity[]): Check[] {
  const { shown } = main;
  const isFalse = shown !== null && !isOfShownAuthority(shown);
  if (isFalse) return [fail(NAME, ...falseAuthority(main))];
  // Nobody is let in by a main that lets everybody in.
  const concerned = shown === null ? own.filter(({ kind }) => kind !== 'waiting') : own;
  if (concerned.length === 0) return [shown === null ? openMain(main) : strangerHere(main)];
  return concerned.map((one) => identityCheck(main, one));
}

function identityCheck(main: MainProbe, own: OwnIdentity): Check {
  const { address, cluster, shown } = main;
  if (own.kind === 'damaged') {
    const found = `this machine shows no certificate to "${cluster}": what it has got by joining cannot be used (${own.reason})`;
    return fail(NAME, found, 'run this as the user of the daemons; if the files are damaged, join again, by --rejoin');
  }
  if (own.kind === 'waiting') {
    const found = `${own.id} shows no certificate: it has begun to join "${cluster}", and was not let in yet`;
    const advice = own.isOperator
      ? `say \`${operatorJoinCommand(own.id)}\` again`
      : 'start it again, and type the code that it shows on the host of main: `odmoe accept CODE`';
    return warn(NAME, found, advice);
  }
  const { authority, peer } = own.credentials;
  const who = `${peer.role} ${own.id}`;
  const digits = shortAuthorityDigest(authority);
  if (shown === null) {
    const found = `main at ${address} speaks plaintext, and ${who} has joined "${cluster}" by the authority ${digits}`;
    const advice =
      'start main with the state directory that holds the authority, or restore it (`odmoe cluster restore`); ' +
      'if main has its authority, something else answers there: do not go on';
    return fail(NAME, found, advice);
  }
  const there = shown.authority === null ? null : shortAuthorityDigest(shown.authority);
  if (there !== null && there !== digits) {
    const found = `main at ${address} is of the authority ${there}, and ${who} of ${digits}`;
    const advice =
      `this is another cluster of the name "${cluster}", or \`odmoe cluster init\` was run twice: join again, by --rejoin, ` +
      "if main's host shows these digits, too";
    return fail(NAME, found, advice);
  }
  if (isRefusal(readPeerCertificate(shown.certificate, authority))) {
    const found = `the certificate of main at ${address} is not of the authority of ${who} (${digits})`;
    return fail(
      NAME,
      found,
      'this is another cluster of the same name, or no main of yours: give its address by --main',
    );
  }
  return admissionCheck(main, who, digits, main.admissions.get(own.id));
}

function admissionCheck(main: MainProbe, who: string, digits: string, admission: Admission | undefined): Check {
  switch (admission?.kind) {
    case 'admitted':
      return ok(NAME, `main at ${main.address} admits ${who}; both are of the authority ${digits}`);
    case 'refused':
      return fail(NAME, `main at ${main.address} refuses ${who}: ${admission.words}`, REFUSED_ADVICE);
    case 'unanswered':
    case undefined: {
      const reason = admission?.reason ?? 'it was not asked';
      return warn(NAME, `main at ${main.address} does not say whether it admits ${who} (${reason})`, 'try again');
    }
  }
}

const REFUSED_ADVICE =
  'a machine that was removed joins again by --rejoin and a new code or token; `odmoe node list` on the host of main shows who is in the cluster';

/** True if the daemon has a certificate of the authority that it shows, or shows none. */
function isOfShownAuthority({ authority, certificate }: ShownByTls): boolean {
  return authority === null || !isRefusal(readPeerCertificate(certificate, authority));
}

function falseAuthority({ address, cluster }: MainProbe): [found: string, advice: string] {
  return [
    `what answers at ${address} as main of "${cluster}" shows an authority that has not certified it`,
    'something stands between, or it is no main of odmoe: do not let this machine join there',
  ];
}

function openMain({ address, cluster }: MainProbe): Check {
  const found = `main at ${address} speaks plaintext: "${cluster}" has no authority`;
  if (isLoopbackHost(hostOf(address))) return ok(NAME, `${found}, and this machine needs none to use it`);
  const advice = 'whoever reaches its port can use it and read what passes: `odmoe cluster init` on its host ends that';
  return warn(NAME, found, advice);
}

function strangerHere({ address, cluster, isNamed, shown }: MainProbe): Check {
  const authority = shown?.authority ?? null;
  const digits = authority === null ? '' : ` of the authority ${shortAuthorityDigest(authority)}`;
  const found = `main at ${address} speaks TLS${digits}, and this machine (as this user) has not joined "${cluster}"`;
  const worker =
    'join: start `odmoe worker` (or shadow), and type the code that it shows on the host of main (`odmoe accept CODE`), or start it with --join-file FILE';
  const advice = `${worker}; commands alone need \`${operatorJoinCommand()}\` (\`odmoe operator add NAME\` on the host of main makes the token)`;
  return isNamed ? fail(NAME, found, advice) : warn(NAME, found, advice);
}

/** `clocks`: those of main and this machine; null: no main told its time. */
export function checkClock(now: Date, clocks: Clocks | null): Check {
  const name = 'clock';
  const found = now.toISOString();
  const scope = 'certificates here do not mind; tokens, logs and the times in answers do';
  if (now.getUTCFullYear() < EARLIEST_YEAR) return warn(name, found, `set the clock (NTP): ${scope}`);
  const apartMs = clocks === null ? NaN : Math.abs(clocks.thereMs - clocks.hereMs);
  if (clocks === null || Number.isNaN(apartMs)) return ok(name, found);
  const there = new Date(clocks.thereMs).toISOString();
  if (apartMs <= CLOCK_LIMIT_MS) return ok(name, `${found}; main's is less than a day from it`);
  return warn(name, `${found}, and main's is ${there}`, `set the one that is wrong (NTP): ${scope}`);
}
