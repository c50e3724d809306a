import { z } from 'zod';
import { issueText } from './issue-text.js';

/** An object that is handed on as it is, not as a copy: what its client wrote is kept beside it (written-json). */
export const jsonObject = z.custom<Record<string, unknown>>(
  (given) => typeof given === 'object' && given !== null && !Array.isArray(given),
  {
    error: ({ input }) => issueText({ code: 'invalid_type', expected: 'object', input, path: [] }),
  },
);
