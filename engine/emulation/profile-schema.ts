/** The valid contents of a profile's YAML; the key of every number names its unit. */
import { z } from 'zod';
import { parseByteSize } from '../../shared/base/text/byte-size.js';
import type { DeviceProfile, ProfiledDevice, ProfiledEnergy } from './device-profile.js';
import { loadModelProfile } from './load-model-profile.js';

const COUNT_LIMIT = 1_000_000_000;
/** No device is slower than this: a lower rate means that the unit is wrong. */
const SLOWEST_RATE = 1000;
const RATE_LIMIT = 1e18;
const OVERHEAD_LIMIT_MS = 60_000;

function wholeNumber(least: number, most = COUNT_LIMIT) {
  const error = `a whole number from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}

function rate(unit: string) {
  const error = `${unit}, from ${SLOWEST_RATE} to ${RATE_LIMIT}`;
  return z.number({ error }).min(SLOWEST_RATE, { error }).max(RATE_LIMIT, { error });
}

const MILLISECONDS_ERROR = `milliseconds, from 0 to ${OVERHEAD_LIMIT_MS}`;
const milliseconds = z
  .number({ error: MILLISECONDS_ERROR })
  .min(0, { error: MILLISECONDS_ERROR })
  .max(OVERHEAD_LIMIT_MS, { error: MILLISECONDS_ERROR });

const NAME_ERROR = 'a name (a text, not empty)';
const name = z.string({ error: NAME_ERROR }).trim().min(1, { error: NAME_ERROR }).max(256, { error: NAME_ERROR });

const SIZE_ERROR = 'a size such as "24 GB", "512 MiB" or a number of bytes';
const byteSize = z.union([z.string(), z.number()], { error: SIZE_ERROR }).transform((value, context) => {
  const bytes = parseByteSize(value);
  if (bytes !== null) return bytes;
  context.addIssue({ code: 'custom', message: SIZE_ERROR, input: value });
  return z.NEVER;
});

const WEIGHT_BYTES_ERROR = 'bytes of a weight, more than 0 and at most 8';
const weightBytes = z
  .number({ error: WEIGHT_BYTES_ERROR })
  .positive({ error: WEIGHT_BYTES_ERROR })
  .max(8, { error: WEIGHT_BYTES_ERROR });

const modelSchema = z.strictObject({ profile: name, weight_bytes: weightBytes });

const ENERGY_ERROR = 'picojoules, from 0 to 1000000';
const picojoules = z
  .number({ error: ENERGY_ERROR })
  .min(0, { error: ENERGY_ERROR })
  .max(1_000_000, { error: ENERGY_ERROR });

const energySchema = z.strictObject({
  link_pj_per_bit: picojoules,
  memory_pj_per_bit: picojoules,
  operation_pj: picojoules,
});

const deviceSchema = z.strictObject({
  memory_bytes: byteSize,
  link_bytes_per_s: rate('bytes per second'),
  link_latency_ms: milliseconds,
  weight_bytes_per_s: rate('bytes per second'),
  flop_per_s: rate('floating-point operations per second'),
  dense_overhead_ms: milliseconds,
  expert_overhead_ms: milliseconds,
  lm_head_overhead_ms: milliseconds,
  recover_bytes_per_s: rate('bytes per second'),
  reserved_bytes: byteSize,
  weight_bytes: weightBytes,
  expert_weight_bytes: weightBytes.optional(),
  energy: energySchema.optional(),
});

const DUPLEX_ERROR = 'half or full';
export const profileSchema = z.strictObject({
  name,
  model: modelSchema,
  devices: z.strictObject({
    main: deviceSchema,
    worker: deviceSchema,
    shadow: deviceSchema.optional(),
    cached: deviceSchema.optional(),
  }),
  network: z.strictObject({
    bytes_per_s: rate('bytes per second'),
    round_trip_ms: milliseconds,
    duplex: z.enum(['half', 'full'], { error: DUPLEX_ERROR }),
    message_overhead_bytes: wholeNumber(0, 1_000_000),
  }),
});

type ProfileDocument = z.infer<typeof profileSchema>;

/** Converts the checked document to the names of the program. Throws the errors of reading the model's sizes. */
export function profileOf({ name: profileName, model, devices, network }: ProfileDocument): DeviceProfile {
  return {
    name: profileName,
    model: loadModelProfile(model.profile, model.weight_bytes),
    devices: {
      main: deviceOf(devices.main),
      worker: deviceOf(devices.worker),
      shadow: devices.shadow === undefined ? null : deviceOf(devices.shadow),
      cached: devices.cached === undefined ? null : deviceOf(devices.cached),
    },
    network: {
      bytesPerS: network.bytes_per_s,
      roundTripMs: network.round_trip_ms,
      duplex: network.duplex,
      messageOverheadBytes: network.message_overhead_bytes,
    },
  };
}

function deviceOf(device: z.infer<typeof deviceSchema>): ProfiledDevice {
  return {
    memoryBytes: device.memory_bytes,
    linkBytesPerS: device.link_bytes_per_s,
    linkLatencyMs: device.link_latency_ms,
    weightBytesPerS: device.weight_bytes_per_s,
    flopPerS: device.flop_per_s,
    denseOverheadMs: device.dense_overhead_ms,
    expertOverheadMs: device.expert_overhead_ms,
    lmHeadOverheadMs: device.lm_head_overhead_ms,
    recoverBytesPerS: device.recover_bytes_per_s,
    reservedBytes: device.reserved_bytes,
    weightBytes: device.weight_bytes,
    expertWeightBytes: device.expert_weight_bytes ?? null,
    energy: device.energy === undefined ? null : energyOf(device.energy),
  };
}

function energyOf(energy: z.infer<typeof energySchema>): ProfiledEnergy {
  return {
    linkPjPerBit: energy.link_pj_per_bit,
    memoryPjPerBit: energy.memory_pj_per_bit,
    operationPj: energy.operation_pj,
  };
}
