'use strict';
// The program comes in a package for each platform, of which npm installs the one that fits.

/** The path of the program for this machine. Throws when there is none. */
exports.path = function path() {
  if (process.env.LOCKGATE) return process.env.LOCKGATE;
  const name = `lockgate-${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/lockgate`);
  } catch {
    throw new Error(
      `the package ${name} is not installed: either there is none for this platform, or npm was told to omit ` +
        'optional dependencies; LOCKGATE can name a program',
    );
  }
};
