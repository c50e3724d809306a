/** Objects that cross the addon's door are flat: the name of a field says its part. Only this file knows these fields; other code has PerPart. */
import type {
  ExpertSlotBytes,
  FlatLoaderOptions,
  FlatLoadOutcome,
  FlatLoadRequest,
  FlatSlotBytes,
  LoaderOptions,
  LoadOutcome,
  LoadRequest,
} from './addon.d.ts';

export function flatLoaderOptions({ entries, expertBytes, shardBytes, ...options }: LoaderOptions): FlatLoaderOptions {
  return {
    ...options,
    exponentEntries: entries.exponent,
    signMantissaEntries: entries.signMantissa,
    expertExponentBytes: expertBytes.exponent,
    expertSignMantissaBytes: expertBytes.signMantissa,
    shardExponentBytes: shardBytes.exponent,
    shardSignMantissaBytes: shardBytes.signMantissa,
  };
}

export function flatLoadRequest({ parts, ...request }: LoadRequest): FlatLoadRequest {
  return { ...request, exponents: parts.exponent, signMantissa: parts.signMantissa };
}

export function loadOutcomeOf(flat: FlatLoadOutcome): LoadOutcome {
  const { exponentReadMs, signMantissaReadMs, exponentsKept, signMantissaKept, ...outcome } = flat;
  return {
    ...outcome,
    readMs: { exponent: exponentReadMs, signMantissa: signMantissaReadMs },
    cached: { exponent: exponentsKept, signMantissa: signMantissaKept },
  };
}

export function slotBytesOf({ exponentEntryBytes, signMantissaEntryBytes, ...bytes }: FlatSlotBytes): ExpertSlotBytes {
  return { ...bytes, entryBytes: { exponent: exponentEntryBytes, signMantissa: signMantissaEntryBytes } };
}
