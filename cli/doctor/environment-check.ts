/** Variables of the environment that weaken TLS in every program of Node. */
import { type Check, ok, warn } from './check.js';

const NAME = 'environment';

/** A way to weaken TLS, and what it does to odmoe. */
interface Weakening {
  /** The setting as a person would write it; null: it is not set. */
  readonly found: (variables: NodeJS.ProcessEnv) => string | null;
  readonly effect: string;
  readonly reachesOdmoe: boolean;
}

const WEAKENINGS: readonly Weakening[] = [
  {
    found: ({ NODE_TLS_REJECT_UNAUTHORIZED: value }) => (value === '0' ? 'NODE_TLS_REJECT_UNAUTHORIZED=0' : null),
    effect: 'programs of Node accept any certificate',
    reachesOdmoe: false,
  },
  {
    found: ({ GRPC_SSL_CIPHER_SUITES: value }) => (value === undefined ? null : 'GRPC_SSL_CIPHER_SUITES'),
    effect: 'programs with gRPC use these ciphers',
    reachesOdmoe: false,
  },
  {
    found: (variables) => optionOf(variables, /^--tls-min-v1\.[0-2]$/),
    effect: 'programs of Node accept this old version of TLS',
    reachesOdmoe: false,
  },
  {
    found: (variables) => optionOf(variables, /^--tls-max-v1\.2$/),
    effect: 'programs of Node speak no newer version of TLS',
    reachesOdmoe: false,
  },
  {
    found: (variables) => optionOf(variables, /^--tls-cipher-list(=|$)/),
    effect: 'programs of Node use these ciphers',
    reachesOdmoe: false,
  },
  {
    found: (variables) => optionOf(variables, /^--tls-keylog(=|$)/),
    effect: 'Node writes the keys of every connection to a file, and whoever has it reads what passed',
    reachesOdmoe: true,
  },
];

/** Node takes an option with a dash or an underscore between its words. */
function optionOf({ NODE_OPTIONS: options = '' }: NodeJS.ProcessEnv, pattern: RegExp): string | null {
  const found = options.split(/\s+/).find((option) => pattern.test(option.replaceAll('_', '-')));
  return found === undefined ? null : `NODE_OPTIONS ${found}`;
}

/** One check for each variable that is set, or one that none is. Daemons may have another environment than the shell of this command. */
export function checkEnvironment(variables: NodeJS.ProcessEnv): Check[] {
  const checks = WEAKENINGS.flatMap(({ found, effect, reachesOdmoe }) => {
    const set = found(variables);
    if (set === null) return [];
    const scope = reachesOdmoe ? 'those of odmoe, too' : 'those of odmoe do not depend on it';
    return [warn(NAME, `${set}: ${effect}; ${scope}`, 'take it out of the environment')];
  });
  return checks.length > 0 ? checks : [ok(NAME, 'no variable weakens TLS')];
}
