BEGIN TRANSACTION;
CREATE TABLE cells (
    cell INTEGER PRIMARY KEY,
    parameters TEXT NOT NULL UNIQUE     -- JSON, everything but seed and trial
);
INSERT INTO "cells" VALUES(1,'{"algorithm": "fedepm", "local_steps": 2, "participation": 1.0, "preset": "private", "noise": "private", "mu0": 0.05, "c": 1e-08, "alpha": 1.001, "coverage_rounds": null, "lam": 5.720000000000001e-06, "eta": 1.1440000000000002e-05, "step": "1/d", "start": "released", "aggregation": "equal", "mechanism": "laplace", "total_epsilon": 2.0, "clip": 1.0, "public_scaling": false, "epsilon_per_round": null, "data": "arrays", "clients": 2, "content": "5a0af6f7b158a396fd4f5f333b1e6aa6d1c1d515bd5802f51de00a09c5c42fee", "partition": "given", "objective": "logistic", "beta": 0.001, "regularizer": "beta/d", "stopping": "none", "max_rounds": 2, "max_iterations": null, "engine": "compiled"}');
INSERT INTO "cells" VALUES(2,'{"algorithm": "fedepm", "local_steps": 1, "participation": 1.0, "preset": "private", "noise": "private", "mu0": 0.05, "c": 1e-08, "alpha": 1.001, "coverage_rounds": null, "lam": 5.720000000000001e-06, "eta": 1.1440000000000002e-05, "step": "1/d", "start": "released", "aggregation": "equal", "mechanism": "laplace", "total_epsilon": 2.0, "clip": 1.0, "public_scaling": false, "epsilon_per_round": null, "data": "arrays", "clients": 2, "content": "5a0af6f7b158a396fd4f5f333b1e6aa6d1c1d515bd5802f51de00a09c5c42fee", "partition": "given", "objective": "logistic", "beta": 0.001, "regularizer": "beta/d", "stopping": "none", "max_rounds": 2, "max_iterations": null, "engine": "compiled"}');
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,            -- SHA-256 of what determines the result
    cell INTEGER NOT NULL REFERENCES cells (cell),
    seed INTEGER NOT NULL,              -- modulo 2^64, signed
    trial INTEGER NOT NULL,
    error TEXT,                         -- why the run failed; NULL for a result
    mean_objective REAL, rounds INTEGER, iterations INTEGER, total_time REAL, local_time REAL,
    snr REAL, accuracy REAL, grad_mean_sq REAL, diverged INTEGER, reasons TEXT,
    guarantee TEXT,                     -- of privacy, in words
    history BLOB,
    versions TEXT NOT NULL,             -- JSON
    machine TEXT NOT NULL,
    created TEXT NOT NULL               -- UTC
);
INSERT INTO "runs" VALUES('551f1d766b9be5b0e2bd1eed1ea50bd1b54224c071e96f6c56c2b1896abd67d4',1,3,0,NULL,3.05158544672095217715e+01,2,4,9.76450000962358899414e-05,8.98799999049515463411e-06,-8.17868911706939094585e-01,4.1666666666666668517e-01,2.24726765491231848803e-02,0,'max_rounds','each client: epsilon <= 2 (pure), for each record of a client, replace-one (simulated, for a seed that is secret and of this run only)',X'7801AB56CA4FCA4A4D2EC92C4B55B25288368ED551504A2F4A4C89CF4D4DCC8B2F2E840BA6E6241614A7A6C0F939F9C98939F12599B9087DC5794570E9C4E4E4D2A2C4E44AB8406A4171664E7E1E3A3F3E39273335AFA4182CAEA360145BCBF5FEB3C0B927E60C1020C8C1C0B09AE1DF3F0620FEF7CF325BF3761017548AD393816115C3FFFF0C40FCFFFF2FC14B8FFB43A05287DB90A5FE45701ABE3BFDE0874303507A630EB294531EFF793961FBC4B3C7DE32302CFF8D2CA597D9B2368679A279E6AF970C0CDFB491A5BEB9F9A92C98FE9F83F3C35E861F2F5EFDF8718BE13DD019EFDFFFFF6FEFE0606F6F6F0744760CF5FBF7D7D7DB33D8DB3300B1BD3D0020FA8C9F','{"fedepm_fast": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "numba": "0.68.1", "machine": "x86_64"}','','2026-11-28T21:00:33+00:00');
INSERT INTO "runs" VALUES('fbf7c4d3832902566cfb76cedbb74a590237d3910903b7745a6ee61345e6b16a',2,3,0,NULL,1.41346953162847412954e+01,2,2,9.0002999968419317156e-05,6.71449970468529500067e-06,-7.80259354690510553709e-01,4.1666666666666668517e-01,1.69547820860406171783e-02,0,'max_rounds','each client: epsilon <= 2 (pure), for each record of a client, replace-one (simulated, for a seed that is secret and of this run only)',X'7801AB56CA4FCA4A4D2EC92C4B55B25288368ED551504A2F4A4C89CF4D4DCC8B2F2E840BA6E6241614A7A6C0F939F9C98939F12599B9087DC5794570E9C4E4E4D2A2C4E44AB8406A4171664E7E1E3A3F3E39273335AFA4182CAEA360145BCBF55E52E49C993C030408DD636058CDF0EF1F0310FFFB67F979CF6D192EA814671A03C32A86FFFF1980F8FFFF5F5C571E477A40A50E47224BFDFB71C2F0A896C0078704A0F4C6726429A7A46FE7A7CFA8F69FB90868EAF247C8527A192E6BEB63D29815777430307CFB8E2CF5CDD44665CEC47FAC6C2F7633FC78F1E2C78F5B0CEF81CE78FFFEFF7F7B07077B7B7B3B20B263A8DFBFBFBEDE9EC1DE9E0188EDED01EE088C3C','{"fedepm_fast": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "numba": "0.68.1", "machine": "x86_64"}','','2026-11-28T21:00:33+00:00');
CREATE INDEX runs_of_cell ON runs (cell, seed, trial);
CREATE VIEW results AS
    SELECT run_id,
           json_extract(parameters, '$.algorithm') AS algorithm,
           json_extract(parameters, '$.local_steps') AS local_steps,
           json_extract(parameters, '$.participation') AS participation,
           json_extract(parameters, '$.epsilon') AS epsilon,
           json_extract(parameters, '$.clients') AS clients,
           json_extract(parameters, '$.data') AS data,
           seed, trial, error, mean_objective, rounds, iterations, total_time, local_time, snr,
           accuracy, grad_mean_sq, diverged, reasons, guarantee, parameters, versions,
           machine, created
    FROM runs JOIN cells USING (cell);
PRAGMA application_id = 1178947661;
PRAGMA user_version = 2;
COMMIT;
