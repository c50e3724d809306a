/** The kinds of values that settings have: each reads a value of cluster.yaml and the text of a flag. */
import { InvalidArgumentError } from 'commander';
import { isIPv4 } from 'node:net';
import { z } from 'zod';
import { parseByteSize, parseContextMemory } from '../base/text/byte-size.js';
import { CLUSTER_NAME_RULE, IDENTIFIER_PATTERN, IDENTIFIER_RULE, isClusterName } from '../base/text/identifier.js';
import { QUALITY_FORMS, readQuality, type Quality } from './quality.js';
import { DEVICE_NAME_ERROR, deviceFlag, isDeviceName, type DeviceName } from './device-name.js';
import { HTTP_ADDRESS_ERROR, httpAddressFlag, parseHttpAddress, type HttpAddress } from './http-address.js';
import { wholeNumberFlag, wholeNumberOrAutoFlag } from './whole-number-flag.js';

export interface ValueKind<Value> {
  /** The values allowed in cluster.yaml, for errors and for the reference. */
  readonly allowed: string;
  /** Checks a value of cluster.yaml. */
  readonly schema: z.ZodType<Value>;
  /** Parses the value of a flag; throws commander's InvalidArgumentError. Absent: flags choose among `choices`, or no flag has this kind. */
  readonly parseFlag?: (text: string) => Value;
  readonly choices?: readonly string[];
}

export function wholeNumber(least: number, most: number): ValueKind<number> {
  const allowed = `a whole number from ${least} to ${most}`;
  return { allowed, schema: wholeNumberSchema(least, most, allowed), parseFlag: wholeNumberFlag(least, most) };
}

export function wholeNumberOrAuto(least: number, most: number): ValueKind<number | 'auto'> {
  const allowed = `auto or a whole number from ${least} to ${most}`;
  const number = wholeNumberSchema(least, most, allowed);
  return { allowed, schema: orAuto(number, allowed), parseFlag: wholeNumberOrAutoFlag(least, most) };
}

function wholeNumberSchema(least: number, most: number, error: string): z.ZodType<number> {
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}

function orAuto<Value>(schema: z.ZodType<Value>, error: string): z.ZodType<Value | 'auto'> {
  return z.union([z.literal('auto', { error }), schema], { error });
}

/** `what`: description of the text. */
export function text(what: string): ValueKind<string> {
  const error = `${what} (a text, not empty)`;
  const schema = z.string({ error }).trim().min(1, { error }).max(1024, { error });
  return { allowed: what, schema, parseFlag: (value) => value };
}

export function choice<const Words extends readonly [string, ...string[]]>(choices: Words): ValueKind<Words[number]> {
  const allowed = `one of ${choices.join(', ')}`;
  return { allowed, schema: z.enum(choices, { error: allowed }), choices };
}

/** On or off. The flag is there, or begins with --no-, or has one of these words. */
export const SWITCH: ValueKind<boolean> = {
  allowed: 'true or false',
  schema: z.boolean({ error: 'true or false' }),
  parseFlag: (value) => {
    if (value === 'on' || value === 'off') return value === 'on';
    throw new InvalidArgumentError('Give on or off.');
  },
};

/** A value that `parse` reads from a text or a number. */
function parsed<Value>(
  allowed: string,
  given: z.ZodType<string | number>,
  parse: (value: string | number) => Value | null,
): z.ZodType<Value> {
  return given.transform((value, context) => {
    const read = parse(value);
    if (read !== null) return read;
    context.addIssue({ code: 'custom', message: allowed, input: value });
    return z.NEVER;
  });
}

function textOrNumber(error: string): z.ZodType<string | number> {
  return z.union([z.string(), z.number()], { error });
}

const SHARE_ERROR = 'a number from 0 to 1';

/** A part of a whole. */
export const SHARE: ValueKind<number> = {
  allowed: SHARE_ERROR,
  schema: z.number({ error: SHARE_ERROR }).min(0, { error: SHARE_ERROR }).max(1, { error: SHARE_ERROR }),
  parseFlag: (value) => {
    const share = /^(?:\d+\.?\d*|\.\d+)$/.test(value) ? Number(value) : NaN;
    if (share >= 0 && share <= 1) return share;
    throw new InvalidArgumentError('Give a number from 0 to 1, as in 0.01.');
  },
};

const SIZE_ERROR = 'a size such as "1 GiB", "512 MiB" or a number of bytes; 0: no limit';

export const BYTE_SIZE: ValueKind<number> = {
  allowed: SIZE_ERROR,
  schema: parsed(SIZE_ERROR, textOrNumber(SIZE_ERROR), parseByteSize),
  parseFlag: byteSizeFlag,
};

const STORE_SIZE_ERROR = 'a size such as "100 GiB" or a number of bytes; 0: none is used';

/** The most bytes of something that 0 switches off. */
export const STORE_SIZE: ValueKind<number> = {
  allowed: STORE_SIZE_ERROR,
  schema: parsed(STORE_SIZE_ERROR, textOrNumber(STORE_SIZE_ERROR), parseByteSize),
  parseFlag: byteSizeFlag,
};

function byteSizeFlag(value: string): number {
  const bytes = parseByteSize(value);
  if (bytes === null) throw new InvalidArgumentError('Give a size such as "512 MiB" or a number of bytes.');
  return bytes;
}

const SIZE_OR_AUTO_ERROR = 'auto, or a size such as "8 GiB"';

export const BYTE_SIZE_OR_AUTO: ValueKind<number | 'auto'> = {
  allowed: SIZE_OR_AUTO_ERROR,
  schema: orAuto(BYTE_SIZE.schema, SIZE_OR_AUTO_ERROR),
  parseFlag: (value) => (value === 'auto' ? value : byteSizeFlag(value)),
};

const CONTEXT_MEMORY_ERROR = 'auto, or a size such as "4 GiB"';

export const CONTEXT_MEMORY: ValueKind<number | 'auto'> = {
  allowed: CONTEXT_MEMORY_ERROR,
  schema: parsed(CONTEXT_MEMORY_ERROR, textOrNumber(CONTEXT_MEMORY_ERROR), parseContextMemory),
  parseFlag: (value) => {
    const bytes = parseContextMemory(value);
    if (bytes === null) throw new InvalidArgumentError('Give auto, or a size such as "4 GiB" or a number of bytes.');
    return bytes;
  },
};

/** A text of a pattern. `request`: what the user of a flag is asked for. */
type FlagKind = ValueKind<string> & Required<Pick<ValueKind<string>, 'parseFlag'>>;

function patternText(allowed: string, pattern: RegExp, request: string): FlagKind {
  return checkedText(allowed, (text) => pattern.test(text), request);
}

function checkedText(allowed: string, isAllowed: (text: string) => boolean, request: string): FlagKind {
  return {
    allowed,
    schema: z.string({ error: allowed }).refine(isAllowed, { error: allowed }),
    parseFlag: (value) => {
      if (isAllowed(value)) return value;
      throw new InvalidArgumentError(request);
    },
  };
}

export const IDENTIFIER = patternText(IDENTIFIER_RULE, IDENTIFIER_PATTERN, `Use ${IDENTIFIER_RULE}.`);

export const CLUSTER_NAME = checkedText(CLUSTER_NAME_RULE, isClusterName, `Use ${CLUSTER_NAME_RULE}.`);

export const HOST = patternText(
  'a host name or an IP address without a port',
  /^([A-Za-z0-9][A-Za-z0-9._-]*|[0-9a-fA-F:]+(%\w+)?)$/,
  'Give a host name or an IP address, without a port.',
);

const HIGHEST_PORT = 65_535;

/** A port that peers dial. A flag may give 0: any free one. */
export const PORT: ValueKind<number> = { ...wholeNumber(1, HIGHEST_PORT), parseFlag: wholeNumberFlag(0, HIGHEST_PORT) };

/** HOST:PORT of a node; only a flag has it. */
export const NODE_ADDRESS: ValueKind<string> = {
  allowed: 'HOST:PORT, as in 192.168.1.20:7600',
  schema: z.string(),
  parseFlag: (value) => {
    const port = /^(?:\[[0-9a-fA-F:.%\w]+\]|[^:[\]\s/]+):(\d{1,5})$/.exec(value)?.[1];
    if (port !== undefined && Number(port) >= 1 && Number(port) <= HIGHEST_PORT) return value;
    throw new InvalidArgumentError('Give HOST:PORT, as in 192.168.1.20:7600.');
  },
};

const IPV4_ERROR = 'the IPv4 address of a network interface of this machine, as in 192.168.1.20';

export const INTERFACE_ADDRESS: ValueKind<string> = {
  allowed: IPV4_ERROR,
  schema: z.ipv4({ error: IPV4_ERROR }),
  parseFlag: (value) => {
    if (isIPv4(value)) return value;
    throw new InvalidArgumentError('Give an IPv4 address of this machine, as in 192.168.1.20.');
  },
};

export const DEVICE_NAME: ValueKind<DeviceName> = {
  allowed: DEVICE_NAME_ERROR,
  schema: z
    .string({ error: DEVICE_NAME_ERROR })
    .refine((value): value is DeviceName => isDeviceName(value), { error: DEVICE_NAME_ERROR }),
  parseFlag: deviceFlag,
};

export const HTTP_ADDRESS: ValueKind<HttpAddress | 'off'> = {
  allowed: HTTP_ADDRESS_ERROR,
  schema: parsed(HTTP_ADDRESS_ERROR, z.string({ error: HTTP_ADDRESS_ERROR }), (value) =>
    parseHttpAddress(String(value)),
  ),
  parseFlag: httpAddressFlag,
};

/** The parameters of an issue whose message is a sentence; other messages say what is expected. */
export const WHOLE_SENTENCE = { isSentence: true } as const;

export const QUALITY: ValueKind<Quality> = {
  allowed: QUALITY_FORMS,
  schema: z.string({ error: QUALITY_FORMS }).transform((value, context) => {
    const read = readQuality(value);
    if ('quality' in read) return read.quality;
    const message = `${JSON.stringify(value)} is no quality: ${read.problem}`;
    context.addIssue({ code: 'custom', message, params: WHOLE_SENTENCE, input: value });
    return z.NEVER;
  }),
  parseFlag: qualityFlag,
};

/** Parses the quality of a flag. */
export function qualityFlag(value: string): Quality {
  const read = readQuality(value);
  if ('quality' in read) return read.quality;
  throw new InvalidArgumentError(`${read.problem}.`);
}

export const HOSTS: ValueKind<string[]> = {
  allowed: 'a list of host names',
  schema: z.array(HOST.schema, { error: 'a list of host names' }).max(1024),
  parseFlag: (value) => value.split(',').map((name) => HOST.parseFlag(name)),
};

const ORIGIN_ERROR = 'an origin, as in https://chat.example.org or http://localhost:3000, or "*" for any';
const ORIGIN_PATTERN = /^(\*|[a-z][a-z0-9+.-]*:\/\/[^/\s*]+)$/;

export const ORIGINS: ValueKind<string[]> = {
  allowed: 'a list of origins',
  schema: z
    .array(z.string({ error: ORIGIN_ERROR }).regex(ORIGIN_PATTERN, { error: ORIGIN_ERROR }), {
      error: 'a list of origins',
    })
    .max(1024),
};

/** Most experts in one pool. */
const POOL_EXPERTS_LIMIT = 65_536;
const poolSize = wholeNumber(0, POOL_EXPERTS_LIMIT).schema.default(0);

/** Numbers of experts by pool; the keys are those of cluster.yaml. */
export const POOL_SIZES: ValueKind<{ full: number; compressed: number; sign_mantissa: number; exponent: number }> = {
  allowed: `a number of experts, from 0 to ${POOL_EXPERTS_LIMIT}, for each pool`,
  schema: z.strictObject({ full: poolSize, compressed: poolSize, sign_mantissa: poolSize, exponent: poolSize }),
};
